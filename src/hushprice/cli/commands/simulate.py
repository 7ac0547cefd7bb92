"""``hushprice simulate``, ``compare`` and ``scaling``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from hushprice import markets, plots, theory
from hushprice.cli.family_option import FamilyName
from hushprice.cli.options import (
    AsCsv,
    AsJson,
    Cost,
    Dim,
    Engine,
    Horizon,
    Load,
    MarketName,
    Plot,
    PolicyWord,
    PolicyWords,
    Prices,
    Public,
    RateName,
    Replications,
    RulesFile,
    SeedOption,
    Workers,
)
from hushprice.cli.output import Output, progress_bar, show, show_scaling
from hushprice.cli.study_progress import rules_from
from hushprice.errors import InvalidInput, positive_int
from hushprice.simulation import NearTruth, Simulated, check_grid, check_log, compare, plain, record, scale, write_log
from hushprice.studies.spec_strings import Setup, check_words, load_policies, whole_numbers


def simulate(
    policy: PolicyWord,
    market: MarketName = "s1",
    dim: Dim = None,
    family: FamilyName = None,
    prices: Prices = None,
    cost: Cost = 0.0,
    public: Public = 0.0,
    rules: RulesFile = None,
    horizon: Horizon = 10_000,
    replications: Replications = 100,
    seed: SeedOption = 0,
    workers: Workers = -1,
    engine: Engine = None,
    load: Load = None,
    plot: Plot = None,
    rate: RateName = None,
    json: AsJson = False,
    csv: AsCsv = False,
    log: Annotated[
        Path | None,
        typer.Option("--log", help="Write the quotes of the first replication to this file (.parquet or .csv)."),
    ] = None,
) -> None:
    """Run one policy in a market and tell its regret.

    With --log every quote of the first replication is written too, with how likely its price was: a log for hushprice
    fit and hushprice evaluate. It holds raw records, of private policies too, whose servers never have them.

    Example: hushprice simulate look-ahead --market s1 --dim 4 --horizon 10000 --replications 50
    """
    output = Output.choose(json, csv)
    setup = _setup([policy], load, market, dim, family, horizon, prices, cost, public, rules)
    (logged,) = setup.policies.values()
    if log is not None:
        check_log(log)
        if isinstance(logged, NearTruth):
            raise InvalidInput("The log of a policy that is drawn anew in each replication cannot be written.")
    _run(setup, horizon, replications, seed, workers, engine, plot, rate, output)
    if log is not None and not isinstance(logged, NearTruth):
        write_log(record(logged, setup.market, horizon=horizon, seed=seed), log)
        Console(stderr=output is not Output.TABLE).print(
            f"Log: {escape(str(log))}{RAW * logged.private}", highlight=False
        )


RAW = " (raw records, for study: the server of this private policy would never see them)"


def compare_command(
    policy: PolicyWords = [],  # noqa: B006 (Typer wants a list)
    market: MarketName = "s1",
    dim: Dim = None,
    family: FamilyName = None,
    prices: Prices = None,
    cost: Cost = 0.0,
    public: Public = 0.0,
    rules: RulesFile = None,
    horizon: Horizon = 10_000,
    replications: Replications = 100,
    seed: SeedOption = 0,
    workers: Workers = -1,
    engine: Engine = None,
    load: Load = None,
    plot: Plot = None,
    rate: RateName = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Run several policies on the same customers.

    Example: hushprice compare look-ahead etc-doubling fixed-price --market wide --plot regret.png
    """
    words = policy or ["look-ahead", "ucb", "ts-wtl", "greedy", "etc", "etc-doubling", "semi-myopic", "mle-cycle"]
    output = Output.choose(json, csv)
    setup = _setup(words, load, market, dim, family, horizon, prices, cost, public, rules)
    _run(setup, horizon, replications, seed, workers, engine, plot, rate, output)


def scaling(
    policy: Annotated[list[str], typer.Argument(help="Policies, with options after a colon.")],
    market: MarketName = "s1",
    dims: Annotated[
        str | None, typer.Option("--dims", "-d", help="Numbers d of features, as 1,4,9.", show_default="1,4,9")
    ] = None,
    horizons: Annotated[
        str, typer.Option("--horizons", "-T", help="Horizons T, as 10000,40000.")
    ] = "10000,40000,90000",
    offset: Annotated[
        float | None,
        typer.Option("--offset", help="Known power of log T in the regret.", show_default="that of the policy's bound"),
    ] = None,
    family: FamilyName = None,
    prices: Prices = None,
    cost: Cost = 0.0,
    public: Public = 0.0,
    rules: RulesFile = None,
    replications: Replications = 50,
    seed: SeedOption = 0,
    workers: Workers = -1,
    engine: Engine = None,
    load: Load = None,
    plot: Plot = None,
    rate: RateName = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Fit how regret grows: log regret = c + slope_d log d + slope_T log T + offset log log T.

    Example: hushprice scaling etc ucb --market s1 --dims 1,4 --horizons 10000,40000 --plot growth.png
    """
    output = Output.choose(json, csv)
    _check_picture(plot, rate)
    grid = {
        "dims": whole_numbers("--dims", dims or ("4,8,12" if market in ("a1", "a2") else "1,4,9")),
        "horizons": whole_numbers("--horizons", horizons),
    }
    check_grid(**grid, offset=offset or 0.0)
    check_words(policy)
    load_policies(load)
    count = positive_int("replications", replications)
    ruled = rules_from(rules)

    def cell(word: str, d: int, T: int) -> tuple[Simulated, markets.Market]:
        setup = Setup.of(
            [word], market=market, dim=d, family=family, horizon=T, prices=prices, cost=cost, public=public, rules=ruled
        )
        return setup.policies[word], setup.market

    for word in policy:  # check all of them before work begins
        for d in grid["dims"]:
            cell(word, d, grid["horizons"][0])
    powers = {word: theory.log_power(word.partition(":")[0]) if offset is None else offset for word in policy}
    console = Console(stderr=output is not Output.TABLE)
    cells = len(policy) * len(grid["dims"]) * len(grid["horizons"])
    with progress_bar(console, cells * count) as advance:
        studies = {
            word: scale(
                partial(cell, word), **grid, offset=power, replications=count, seed=seed, workers=workers,
                engine=engine, progress=advance,
            )
            for word, power in powers.items()
        }  # fmt: skip
    show_scaling(console, studies, output)
    if plot is not None:
        console.print(f"Picture: {escape(str(plots.save(plots.growth(studies, rate=rate), plot)))}")


def _tell_privacy(console: Console, setup: Setup) -> None:
    """What reports give away, and who sends raw records."""
    typed = {label: plain(policy).as_private() for label, policy in setup.policies.items()}
    private = {label: policy for label, policy in typed.items() if policy is not None}
    for label, policy in private.items():
        console.print(f"{escape(label)}: {policy.guarantee}.", highlight=False)
    mixed = [label for label, policy in private.items() if policy.raw_by_choice]
    if setup.market.public and private:
        who = f"only {', '.join(mixed)} asks for them" if mixed else "no policy here asks for them"
        console.print(
            f"{setup.market.public:.0%} of customers agree to send raw records; {escape(who)}.", highlight=False
        )
    elif mixed:
        console.print("Nobody agrees to send raw records here: set a share with --public 0.1.", highlight=False)


def _check_picture(plot: Path | None, rate: str | None) -> None:
    """Refuse a picture that cannot be drawn before any work is done."""
    if plot is not None:
        plots.check_file(plot)
    if rate is not None:
        theory.plain_rate(rate)
        if plot is None:
            raise InvalidInput("--rate is drawn in the picture: name its file with --plot.")


def _setup(
    words: list[str],
    load: Path | None,
    market: str,
    dim: int | None,
    family: str | None,
    horizon: int,
    prices: tuple[float, float] | None,
    cost: float,
    public: float,
    rules: Path | None,
) -> Setup:
    load_policies(load)
    return Setup.of(
        words, market=market, dim=dim, family=family, horizon=horizon, prices=prices, cost=cost, public=public,
        rules=rules_from(rules),
    )  # fmt: skip


def _run(
    setup: Setup,
    horizon: int,
    replications: int,
    seed: int,
    workers: int,
    engine: str | None,
    plot: Path | None,
    rate: str | None,
    output: Output,
) -> None:
    _check_picture(plot, rate)
    positive_int("replications", replications)
    positive_int("horizon", horizon)
    console = Console(stderr=output is not Output.TABLE)
    with progress_bar(console, len(setup.policies) * replications) as advance:
        results = compare(
            setup.policies,
            setup.market,
            horizon=horizon,
            replications=replications,
            seed=seed,
            workers=workers,
            engine=engine,
            progress=advance,
        )
    show(console, results, output)
    _tell_privacy(console, setup)
    if plot is not None:
        console.print(f"Picture: {escape(str(plots.save(plots.overview(results, rate=rate), plot)))}")
