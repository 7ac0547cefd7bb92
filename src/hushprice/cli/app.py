"""What people type: ``hushprice demo | simulate | compare | scaling | audit | list``."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hushprice import markets, plots, policies, privacy, theory
from hushprice.cli.show import Output, progress_bar, show, show_audits, show_scaling
from hushprice.cli.words import Study, check_words, load_policies, options_of, whole_numbers
from hushprice.errors import HushpriceError, InvalidInput, positive_int
from hushprice.simulation import check_grid, compare, scale
from hushprice.version import __version__

app = typer.Typer(
    name="hushprice",
    help="Set prices for arriving customers, learn demand while earning. Start with: hushprice demo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)

PolicyWord = Annotated[
    str,
    typer.Argument(help="A policy, with options after a colon: etc, mle-cycle:variant=original,ridge=0.1"),
]
PolicyWords = Annotated[
    list[str],
    typer.Argument(
        help="Policies, with options after a colon. Default: a choice of those that learn.", show_default=False
    ),
]
MarketName = Annotated[str, typer.Option("--market", "-m", help="Market: s1, s2, wide, a1, a2 or lower-bound.")]
Dim = Annotated[int, typer.Option("--dim", "-d", help="Number d of features.")]
FamilyName = Annotated[
    str | None,
    typer.Option("--family", help="True demand: logistic, linear or poisson.", show_default="the market's"),
]
Horizon = Annotated[int, typer.Option("--horizon", "-T", help="Customers per replication.")]
Replications = Annotated[int, typer.Option("--replications", "-n", help="Replications.")]
SeedOption = Annotated[int, typer.Option("--seed", "-s", help="Seed: same seed, same customers, same numbers.")]
Workers = Annotated[int, typer.Option("--workers", "-w", help="Processes; -1 for all cores.")]
Engine = Annotated[str | None, typer.Option("--engine", help="dask://host:port to run on a Dask cluster.")]
Prices = Annotated[
    tuple[float, float] | None, typer.Option("--prices", help="Lowest and highest price.", show_default="the market's")
]
Cost = Annotated[float, typer.Option("--cost", help="Unit cost: (price - cost) times demand is earned.")]
Public = Annotated[
    float, typer.Option("--public", help="Share of customers who agree to send raw records (etc-ldp-mixed).")
]
Load = Annotated[
    Path | None, typer.Option("--load", help="A Python file that registers policies or markets of your own.")
]
RateName = Annotated[
    str | None, typer.Option("--rate", help="Draw this bound of the theory too: minimax, etc, supcb or ucb.")
]
Plot = Annotated[Path | None, typer.Option("--plot", "-p", help="Draw to this file (.png, .svg or .pdf).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table.")]


@app.command()
def simulate(
    policy: PolicyWord,
    market: MarketName = "s1",
    dim: Dim = 4,
    family: FamilyName = None,
    prices: Prices = None,
    cost: Cost = 0.0,
    public: Public = 0.0,
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
    """Run one policy in a market and tell its regret.

    Example: hushprice simulate etc --market s1 --dim 4 --horizon 10000 --replications 50
    """
    output = Output.choose(json, csv)
    study = _study([policy], load, market, dim, family, horizon, prices, cost, public)
    _run(study, horizon, replications, seed, workers, engine, plot, rate, output)


@app.command(name="compare")
def compare_command(
    policy: PolicyWords = [],  # noqa: B006 (Typer wants a list)
    market: MarketName = "s1",
    dim: Dim = 4,
    family: FamilyName = None,
    prices: Prices = None,
    cost: Cost = 0.0,
    public: Public = 0.0,
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

    Example: hushprice compare etc mle-cycle mle-cycle:variant=original fixed-price --market wide --plot regret.png
    """
    words = policy or ["etc", "etc-doubling", "mle-cycle", "semi-myopic", "ucb", "ts-wtl", "greedy"]
    output = Output.choose(json, csv)
    study = _study(words, load, market, dim, family, horizon, prices, cost, public)
    _run(study, horizon, replications, seed, workers, engine, plot, rate, output)


@app.command()
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

    def cell(word: str, d: int, T: int) -> tuple[policies.Policy, markets.Market]:
        study = Study.of(
            [word], market=market, dim=d, family=family, horizon=T, prices=prices, cost=cost, public=public
        )
        return study.policies[word], study.market

    for word in policy:  # a mistake in any of them is told before work begins
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


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for pictures and tables.")] = Path("hushprice-demo"),
    seed: SeedOption = 0,
    workers: Workers = -1,
) -> None:
    """Compare the policies on three markets: tables, pictures, JSON and CSV, in about a minute."""
    console = Console()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InvalidInput(f"The folder {out} cannot be made: {problem.strerror}. Pass another with --out.") from None
    stories: tuple[tuple[str, dict[str, Any], int, list[str], str], ...] = (
        (
            "wide",
            {"market": "wide", "dim": 4, "horizon": 50_000},
            40,
            ["etc", "etc-doubling", "mle-cycle", "semi-myopic", "fixed-price"],
            "Customers differ, so the right price differs: learning beats even the best single price.",
        ),
        (
            "s2",
            {"market": "s2", "dim": 4, "horizon": 50_000},
            40,
            ["etc", "etc-doubling", "mle-cycle", "semi-myopic", "greedy"],
            "Here one price is right for everyone, but a seller who never experiments need not find it.",
        ),
        (
            "privacy",
            {"market": "s1", "dim": 2, "horizon": 200_000, "public": 0.1},
            20,
            ["etc", "etc-ldp:epsilon=4,noise=privunit", "etc-ldp:epsilon=1", "etc-ldp-mixed:epsilon=1", "random-price"],
            "What it costs to learn from randomised reports alone; in the mixed one a tenth send raw records.",
        ),
    )
    for name, world, runs, words, story in stories:
        study = Study.of(words, family="logistic", **world)
        console.print(
            f"\n[bold]Market {world['market']}[/bold], d = {world['dim']}, {world['horizon']:,} customers, "
            f"{runs} replications. {story}"
        )
        with progress_bar(console, len(words) * runs) as advance:
            results = compare(
                study.policies,
                study.market,
                horizon=world["horizon"],
                replications=runs,
                seed=seed,
                workers=workers,
                progress=advance,
            )
        show(console, results, Output.TABLE)
        plots.save(plots.overview(results), out / f"{name}.png")
        try:
            (out / f"{name}.json").write_text(results.to_json() + "\n", encoding="utf-8")
            (out / f"{name}.csv").write_text(results.to_csv(), encoding="utf-8")
        except OSError as problem:
            raise HushpriceError(f"The results cannot be written to {out}: {problem.strerror}.") from problem
    console.print(
        "\nRegret is revenue lost against knowing demand. 'fixed-price' is the best single price, known in advance; "
        "'semi-myopic' varies every price a little, so all its rounds count as explored. 'epsilon' is what one private "
        "report may give away: at 1 no report is more than 2.7 times as likely from one customer as from another."
    )
    console.print(f"Pictures and tables are in [bold]{escape(str(out))}/[/bold]: start with wide.png.")
    console.print(f"Next: [bold]{escape(_command())} compare --market s1 --dim 9 --plot s1.png[/bold]")


@app.command(name="audit")
def audit_command(
    mechanism: Annotated[
        list[str],
        typer.Argument(
            help="Mechanisms: l2-ball, privunit, gaussian, randomized-response.", show_default="all of them"
        ),
    ] = [],  # noqa: B006 (Typer wants a list)
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="Claimed epsilon.")] = 1.0,
    delta: Annotated[float, typer.Option("--delta", help="Claimed delta, of the Gaussian.")] = 1e-3,
    dim: Annotated[int, typer.Option("--dim", "-n", help="Length of the vectors: 2 d for d features.")] = 4,
    samples: Annotated[int, typer.Option("--samples", help="Reports of each input.")] = 200_000,
    confidence: Annotated[float, typer.Option("--confidence", help="Of all that is certified, together.")] = 0.999,
    with_controls: Annotated[
        bool, typer.Option("--controls/--no-controls", help="Also attack mechanisms that are wrong on purpose.")
    ] = True,
    unsafe_seed: Annotated[
        int | None, typer.Option("--unsafe-seed", help="Repeatable noise instead of the operating system's.")
    ] = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Attack the privacy mechanisms: certified lower bounds on epsilon, next to what is claimed.

    Mechanisms that are wrong on purpose must be caught; the command fails if one is not, or if a claim is broken.

    Example: hushprice audit l2-ball privunit --epsilon 2 --samples 20000
    """
    output = Output.choose(json, csv)
    names = mechanism or list(privacy.REGISTRY)
    subjects = [(name, _mechanism(name, epsilon, delta, dim), True) for name in names]
    if with_controls:
        wrong = privacy.controls(epsilon=epsilon, delta=delta, clip=1.0, dim=dim)
        subjects += [(control.name, control, False) for control in wrong]
    console = Console(stderr=output is not Output.TABLE)
    entropy = None if unsafe_seed is None else privacy.UnsafeSeed(unsafe_seed)
    results = []
    total = sum(len(subject.extremes()) for _, subject, _ in subjects)
    with progress_bar(console, total, doing="attacking", things="pairs of inputs") as advance:
        for _, subject, honest in subjects:
            found = privacy.audit(subject, samples=samples, confidence=confidence, rng=entropy, progress=advance)
            results.append((found, honest))
    show_audits(console, results, output)
    if any(found.passed is not honest for found, honest in results):
        raise typer.Exit(1)


def _mechanism(name: str, epsilon: float, delta: float, dim: int) -> privacy.Mechanism:
    options: dict[str, Any] = {"epsilon": epsilon, "clip": 1.0, "dim": dim, "delta": delta}
    known = {f.name for f in dataclasses.fields(privacy.get(name)) if f.init}  # type: ignore[arg-type]
    return privacy.build(name, **{key: value for key, value in options.items() if key in known})


@app.command(name="list")
def list_command(
    name: Annotated[
        str | None, typer.Argument(help="A policy, market or mechanism, to read more of it.", show_default=False)
    ] = None,
    load: Load = None,
) -> None:
    """Name the policies, markets and mechanisms there are, or tell more of one: what it does and takes."""
    console = Console()
    load_policies(load)
    others: tuple[Mapping[str, Any], ...] = (markets.REGISTRY, privacy.REGISTRY)
    for registry in others:
        if name is not None and name in registry:
            console.print(_told(name, registry[name]), highlight=False)
            return
    if name is not None:
        cls = policies.get(name)
        console.print(_told(name, cls), highlight=False)
        defaults = {f.name: f.default for f in dataclasses.fields(cls)}
        for option in options_of(cls):
            missing = defaults[option] is dataclasses.MISSING
            told = "set by --horizon" if option == "horizon" else "needed" if missing else f"default {defaults[option]}"
            console.print(f"  {option}: {told}", highlight=False)
        return
    table = Table(show_header=False, box=None)
    for kind, names in _KINDS:
        for i, (name, thing) in enumerate(names.items()):
            first = (thing.__doc__ or "").strip().splitlines()[0]
            table.add_row("" if i else kind, f"[bold]{name}[/bold]", escape(first))
    console.print(table)


_KINDS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("policies", policies.REGISTRY),
    ("markets", markets.REGISTRY),
    ("mechanisms", privacy.REGISTRY),
)


def _told(name: str, thing: Any) -> str:
    """The docstring of a policy or market, without its example."""
    text = (inspect.getdoc(thing) or "").partition(">>>")[0].replace("``", "").rstrip()
    text = re.sub(r"(?<!\n)\n(?!\n)", " ", text)  # lines are broken by the screen
    return f"[bold]{name}[/bold]: {escape(text)}\n"


def _check_picture(plot: Path | None, rate: str | None) -> None:
    """Refuse a picture that cannot be drawn before any work is done."""
    if plot is not None:
        plots.check_file(plot)
    if rate is not None:
        theory.plain_rate(rate)
        if plot is None:
            raise InvalidInput("--rate is drawn in the picture: name its file with --plot.")


def _command() -> str:
    """How this command was called, for a hint that can be pasted."""
    called = sys.argv[0]
    return called if Path(called).name == "hushprice" else "hushprice"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hushprice {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


def _study(
    words: list[str],
    load: Path | None,
    market: str,
    dim: int,
    family: str | None,
    horizon: int,
    prices: tuple[float, float] | None,
    cost: float,
    public: float,
) -> Study:
    load_policies(load)
    return Study.of(
        words, market=market, dim=dim, family=family, horizon=horizon, prices=prices, cost=cost, public=public
    )


def _run(
    study: Study,
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
    with progress_bar(console, len(study.policies) * replications) as advance:
        results = compare(
            study.policies,
            study.market,
            horizon=horizon,
            replications=replications,
            seed=seed,
            workers=workers,
            engine=engine,
            progress=advance,
        )
    show(console, results, output)
    if plot is not None:
        console.print(f"Picture: {escape(str(plots.save(plots.overview(results, rate=rate), plot)))}")


def main() -> None:
    """Entry point: a refusal is one line on standard error, not a traceback."""
    try:
        app()
    except HushpriceError as problem:
        Console(stderr=True).print(f"[bold red]error:[/bold red] {escape(str(problem))}", highlight=False)
        sys.exit(2)
