"""A plan: the profit of policies and privacy levels on a twin, compared with today's prices."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushprice.arrays import Array
from hushprice.errors import HushpriceError, InvalidInput, finite, positive_int
from hushprice.files import without_nan
from hushprice.markets.twin.twin import Twin
from hushprice.planning.curves import SegmentPrices, allowed_prices, segment_prices
from hushprice.planning.option_results import Line
from hushprice.planning.options import EPSILONS, LEARNING, OPT_OUT, Option, options, stepwise
from hushprice.planning.recommendation import Recommendation, Situation, recommend
from hushprice.simulation import Job, Result, check_pair, csv_text, rounds_of, run_jobs, workers_of
from hushprice.simulation.engine import Outcome

if TYPE_CHECKING:
    from hushprice.plots import Picture

LONGEST = 100_000  # largest default horizon, in customers
OnProgress = Callable[[int, int], None]
"""Called with the number of finished replications and the total number."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """The result of a plan: simulations by label, and the same as lines in money.

    Attributes
    ----------
    twin : Twin
        The market.
    options : tuple of Option
        The options compared; the first is today's prices.
    results : dict of str to Result
        Simulation results by the label of the option.
    horizon, seed : int
        Customers per replication, and the seed of the simulations.
    worth : float
        Money per unit of price.
    currency : str
        Currency sign in texts and tables.
    """

    twin: Twin
    options: tuple[Option, ...]
    results: dict[str, Result]
    horizon: int
    seed: int
    worth: float
    currency: str

    def __repr__(self) -> str:
        return f"<Plan of {len(self.options)} options, {self.horizon:,} customers: {self.recommendation.headline}>"

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """One line per option, in money."""
        full = max(result.replications for result in self.results.values())
        whole = [result for result in self.results.values() if result.replications == full]
        best = self.worth * np.mean([result.revenue + result.regret for result in whole], axis=0)
        losses = {label: self.worth * result.regret for label, result in self.results.items()}
        return tuple(self._line(option, losses, best) for option in self.options)

    def _line(self, option: Option, losses: dict[str, Array], best: Array) -> Line:
        result = self.results[option.label]
        return Line(
            label=option.label,
            kind=option.kind,
            word=option.word,
            losses=losses[option.label],
            best=best,
            experiments=float(result.exploration.mean()),
            deviation=float(result.deviation.mean()),
            far=float(result.far.mean()),
            today=losses[self.options[0].label],
            partner=None if option.partner is None else losses[option.partner],
            epsilon=option.epsilon,
            opt_out=option.opt_out,
            from_log=option.from_log,
        )

    @cached_property
    def segments(self) -> list[SegmentPrices]:
        """Today's prices and the model's by segment; the first entry is all customers."""
        return segment_prices(self.twin, worth=self.worth)

    @cached_property
    def recommendation(self) -> Recommendation:
        """The recommended option, with reasons."""
        return recommend(self.lines, self.situation)

    @property
    def situation(self) -> Situation:
        """The facts besides the results on which the recommendation depends."""
        twin, check = self.twin, self.twin.about.check
        return Situation(
            horizon=self.horizon,
            currency=self.currency,
            allowed=allowed_prices(twin),
            findings=twin.findings,
            uncertain=twin.covariance is not None,
            check=None if check is None else check.holds,
            misfits=() if check is None else check.misfits,
            stepwise=stepwise(twin),
            drifts=twin.drift is not None,
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row per option, for CSV and JSON; money over the whole horizon."""
        return [line.row() for line in self.lines]

    def to_json(self) -> str:
        """The plan as JSON text."""
        check = self.twin.about.check
        data = {
            "recommendation": asdict(self.recommendation),
            "horizon": self.horizon,
            "seed": self.seed,
            "worth": self.worth,
            "currency": self.currency,
            "options": self.rows(),
            "segments": [asdict(one) for one in self.segments],
            "check": None if check is None else {
                "holds": check.holds,
                "failing": check.failing,
                "misfits": [place.to_dict() for place in check.misfits],
            },
        }  # fmt: skip
        return json.dumps(without_nan(data), indent=2)

    @cached_property
    def pictures(self) -> dict[str, Picture]:
        """The pictures by name. Matplotlib is imported at the first use."""
        from hushprice.planning.report import pictures

        return pictures(self)

    def html(self) -> str:
        """The report as one self-contained HTML page."""
        from hushprice.planning.report import page_of

        return page_of(self)

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write report.html, table.csv, plan.json and the pictures.

        Parameters
        ----------
        folder : path
            A folder that :func:`check_folder` allows; it is created if necessary.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        HushpriceError
            If the folder has files that are not of an earlier plan, or cannot be written.
        """
        from hushprice.planning.report import PICTURES
        from hushprice.plots import save

        place = check_folder(folder)
        try:
            place.mkdir(parents=True, exist_ok=True)
            texts = {"report.html": self.html(), "table.csv": csv_text(self.rows()), "plan.json": self.to_json() + "\n"}
            for name, text in texts.items():
                (place / name).write_text(text, encoding="utf-8")
        except OSError as problem:
            raise HushpriceError(f"The plan cannot be written to {place}: {problem.strerror}.") from problem
        for name in PICTURES:
            (place / f"{name}.png").unlink(missing_ok=True)  # from an earlier plan
        for picture in self.pictures.values():
            save(picture.figure, place / f"{picture.name}.png")
        return place


def check_folder(folder: str | PathLike[str]) -> Path:
    """The path of a folder that a plan may be written to; refuse one with files of the same names from elsewhere."""
    from hushprice.planning.report import PICTURES, TITLE

    place, names = Path(folder), ["report.html", "table.csv", "plan.json", *(f"{name}.png" for name in PICTURES)]
    existing = [name for name in names if (place / name).exists()]
    try:
        ours = TITLE.encode() in (place / names[0]).read_bytes() if names[0] in existing else not existing
    except OSError:
        ours = False
    if not ours:
        raise InvalidInput(
            f"{place / existing[0]} is not of an earlier plan, so it is left alone. Choose another folder."
        )
    return place


def plan(
    twin: Twin,
    *,
    horizon: int | None = None,
    policies: Iterable[str] = LEARNING,
    epsilons: Sequence[float] = EPSILONS,
    opt_out: Sequence[float] = OPT_OUT,
    epsilon: float = 2.0,
    replications: int = 40,
    seed: int = 0,
    workers: int = -1,
    worth: float = 1.0,
    currency: str = "",
    progress: OnProgress | None = None,
) -> Plan:
    """Compare policies and privacy levels on a twin, in money, with today's prices.

    Parameters
    ----------
    twin : Twin
        The market, made from a log by :func:`hushprice.markets.twin.twin`.
    horizon : int, optional
        Customers to plan for; by default the rows of the log, at most 100 000.
    policies : iterable of str
        Policies, as words such as "etc-doubling".
    epsilons : sequence of float
        Privacy levels of etc-ldp.
    opt_out : sequence of float
        Shares of customers who refuse to send raw records, at privacy level ``epsilon``.
    epsilon : float
        Privacy level of the customers who opt out.
    replications : int
        Number of replications, each with its own customers and, if the twin is uncertain, its own truth. Private
        options, which are slow, use the first half of them.
    seed : int
        Seed of the simulations.
    workers : int
        Processes; -1 for one per core.
    worth : float
        Money per unit of price.
    currency : str
        Currency sign in texts and tables.
    progress : callable, optional
        Called with the number of finished replications and the total number.

    Returns
    -------
    Plan
        Results, table, recommendation and report.

    Raises
    ------
    InvalidInput
        If an option is invalid; this is checked before any simulation.

    Notes
    -----
    If the rules have a largest step there are no private options, as no private policy can satisfy it. On a twin that
    drifts, the results are those of the run; findings, curves, segments and the model's prices are of its start.
    """
    if not isinstance(twin, Twin):
        raise InvalidInput(f"plan needs a twin, made by hushprice.markets.twin.twin, got {type(twin).__name__}.")
    T = min(twin.about.log_rows, LONGEST) if horizon is None else positive_int("horizon", horizon)
    replications = positive_int("replications", replications, minimum=2)
    seed = positive_int("seed", seed, minimum=0)
    worth = finite("worth", worth, minimum=0.0, strict=True)
    light = replace(twin, about=replace(twin.about, model=None, check=None))  # workers receive this copy
    chosen = options(light, T, policies=policies, epsilons=epsilons, opt_out=opt_out, epsilon=epsilon)
    for option in chosen:
        check_pair(option.policy, option.market)
    results = _run(chosen, T, replications, seed, workers_of(workers), progress)
    return Plan(twin=twin, options=tuple(chosen), results=results, horizon=T, seed=seed, worth=worth, currency=currency)


def _run(
    chosen: Sequence[Option], horizon: int, replications: int, seed: int, workers: int, progress: OnProgress | None
) -> dict[str, Result]:
    """Results by label; the jobs that take longest run first."""
    rounds = rounds_of(100, horizon)
    jobs: list[tuple[str, Job]] = []
    for option in sorted(chosen, key=lambda one: -(one.epsilon or 0.0)):
        count = replications if option.partner is None else max(2, replications // 2)
        for r in range(count):
            job = Job(
                policy=option.policy, market=option.market, horizon=horizon, seed=seed, checkpoints=rounds,
                replications=range(r, r + 1),
            )  # fmt: skip
            jobs.append((option.label, job))
    done: dict[str, dict[int, Outcome]] = {option.label: {} for option in chosen}
    for count, (i, (outcome,)) in enumerate(run_jobs([job for _, job in jobs], workers=workers), start=1):
        label, job = jobs[i]
        done[label][job.replications[0]] = outcome
        if progress:
            progress(count, len(jobs))
    first = dict(reversed(jobs))
    return {
        label: Result.of([outcomes[r] for r in range(len(outcomes))], first[label]) for label, outcomes in done.items()
    }
