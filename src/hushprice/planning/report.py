"""A plan as one self-contained page: recommendation, table, pictures and assumptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hushprice.planning.curves import allowed_prices, curves
from hushprice.planning.option_results import BLANK, Interval, Line, factor, money
from hushprice.planning.options import confidence_radius, largest_demand, usual_norm, wide_radius
from hushprice.plots import Picture, Section, Table, page
from hushprice.plots.planning import (
    Bar,
    Path,
    PricePair,
    demand_curve,
    loss_by_option,
    loss_paths,
    prices_by_segment,
    privacy_price,
)
from hushprice.simulation import percentage
from hushprice.version import __version__

if TYPE_CHECKING:
    from hushprice.planning.plan import Plan

COLOUR = {"today": None, "model": 0, "learning": 2, "private": 1}
TITLE = "A pricing plan for"
HYPHEN = "\u2011"  # non-breaking hyphen
MOST_PATHS = 4  # learning policies drawn
MAX_SEGMENTS = 15  # largest number drawn
MAX_GROUPS = 12  # largest number shown in a comparison


def page_of(plan: Plan) -> str:
    """The report of a plan as an HTML page."""
    recommendation = plan.recommendation
    sections = [
        _recommendation(plan),
        _table(plan),
        *(_pictured(plan, name, heading, text) for name, heading, text in _CHAPTERS if name in plan.pictures),
        _prices(plan),
        _model(plan),
        _check(plan),
        _assumptions(plan),
    ]
    return page(f"{TITLE} {plan.twin.about.log}", recommendation.headline, sections)


def pictures(plan: Plan) -> dict[str, Picture]:
    """All pictures by name, in the order of the page; curves with one point are left out."""
    made = {name: make(plan) for name, make in PICTURES.items()}
    return {name: picture for name, picture in made.items() if picture is not None}


def _recommendation(plan: Plan) -> Section:
    recommendation = plan.recommendation
    text = [*recommendation.reasons, *(f"Caveat: {caveat.text}" for caveat in recommendation.caveats)]
    return Section("What to do", "recommendation", text=text)


def table_rows(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """The table of the page: amounts with intervals, without columns that are empty in every line."""
    rows = [
        {
            "option": line.label,
            "revenue": money(line.revenue.mean),
            "lost": _amount(line.loss),
            "gain over today": _amount(line.gain),
            "a gain in": "" if line.wins is None else f"{line.wins} of {line.replications}",
            "price of privacy": _amount(line.privacy),
            "deviation": percentage(line.deviation),
            "far": percentage(line.far),
        }
        for line in lines
    ]
    empty = {name for name in rows[0] if not any(row[name] for row in rows)}
    return [{name: value for name, value in row.items() if name not in empty} for row in rows]


def _together(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """The table with option names that break only at commas, for narrow screens."""
    rows = table_rows(lines)
    for row in rows:
        row["option"] = row["option"].replace(" ", BLANK).replace(f",{BLANK}", ", ").replace("-", HYPHEN)
    return rows


def _amount(interval: Interval | None) -> str:
    """A mean and its interval, without line breaks in the interval."""
    if interval is None:
        return ""
    mean, low, high = (money(value) for value in (interval.mean, interval.low, interval.high))
    return f"{mean} ({low}{BLANK}to{BLANK}{high})"


def _table(plan: Plan) -> Section:
    full = max(line.replications for line in plan.lines)
    text = (
        f"Money over {plan.horizon:,} customers, means over replications with 95% intervals, which shrink as more are "
        f"run; what the log leaves open shows in how often there is a gain. Every option sells to the "
        f"same customers; differences are paired. Revenue is net of cost. Lost is what knowing demand would have "
        f"earned more. Deviation is how far prices are on average from the best known price, in percent of the price "
        f"range, and far the share that is more than 10% of the range away. {full} replications, half as many of the "
        f"private options."
    )
    unit = f"in {plan.currency.strip()}" if plan.currency.strip() else "in units of price"
    private = [line for line in plan.lines if line.privacy is not None]
    tables = [Table(_together([line for line in plan.lines if line.privacy is None]), f"What to run, {unit}")]
    if private:
        tables.append(Table(_together(private), f"With privacy, {unit}; its price is against the same policy without"))
    return Section("All options", "options", text=(text,), tables=tables)


_CHAPTERS = (
    ("losses", "What each option loses", "Against knowing demand. The dotted line is today's prices."),
    ("paths", "When it is lost", "A steep beginning is experiments; a straight line never learns."),
    (
        "epsilon",
        "The price of privacy",
        "What etc-ldp loses more than etc, which learns from raw records. A smaller epsilon gives away less. 'From the "
        "log' starts from the fitted model, which is the seller's own.",
    ),
    (
        "opt-out",
        "If customers may opt out",
        "etc-ldp-mixed learns from raw records of those who agree and from private reports of the others. The price is "
        "against etc, where everybody sends raw records; what is left at 0% is the cost of being ready for the choice.",
    ),
)


def _pictured(plan: Plan, name: str, heading: str, text: str) -> Section:
    return Section(heading, name, text=(text,), pictures=(plan.pictures[name],))


def _losses(plan: Plan) -> Picture:
    drawn = [line for line in plan.lines if line.kind != "opt-out"]
    bars = [_bar(line.label, line.loss, COLOUR[line.kind]) for line in drawn]
    least = min(drawn, key=lambda line: line.loss.mean)
    alt = f"Losses of {len(bars)} options with 95% intervals; {least.label} loses least."
    return Picture(loss_by_option(bars, unit=plan.currency), alt, name="losses")


def _paths(plan: Plan) -> Picture:
    drawn = [line for line in plan.lines if line.kind in ("today", "model")]
    learning = sorted((line for line in plan.lines if line.kind == "learning"), key=lambda line: line.loss.mean)
    drawn += learning[:MOST_PATHS]
    private = [line for line in plan.lines if line.kind == "private"]
    drawn += private[len(private) // 2 :][:1]
    made = []
    for k, line in enumerate(drawn):
        result = plan.results[line.label]
        band = factor(result.replications) * plan.worth * result.path_sd() / np.sqrt(result.replications)
        colour = None if line.kind == "today" else k - 1
        made.append(Path(line.label, result.checkpoints, plan.worth * result.path_mean(), band, colour))
    alt = f"Loss so far over {plan.horizon:,} customers, of {', '.join(path.label for path in made)}."
    return Picture(loss_paths(made, unit=plan.currency), alt, name="paths")


def _epsilon(plan: Plan) -> Picture | None:
    private = [line for line in plan.lines if line.kind == "private" and line.epsilon is not None]
    named = {"from nothing": False, "from the log": True}
    curves = {name: _curve(line for line in private if line.from_log is flag) for name, flag in named.items()}
    x = [line.epsilon or 0.0 for line in private if not line.from_log]
    if len(x) < 2:
        return None
    figure = privacy_price({k: v for k, v in curves.items() if v}, unit=plan.currency, x_label="epsilon", x=x)
    return Picture(figure, f"The price of privacy at epsilon {', '.join(f'{e:g}' for e in x)}.", name="epsilon")


def _opt_out(plan: Plan) -> Picture | None:
    lines = [line for line in plan.lines if line.kind == "opt-out"]
    if len(lines) < 2:
        return None
    x = [line.opt_out or 0.0 for line in lines]
    label = "share of customers who opt out"
    figure = privacy_price({"etc-ldp-mixed": _curve(lines)}, unit=plan.currency, x_label=label, x=x)
    return Picture(figure, "The price of privacy over the share of customers who opt out.", name="opt-out")


def _curve(lines: Iterable[Line]) -> list[Bar]:
    return [_bar(line.label, line.privacy, 0) for line in lines if line.privacy is not None]


def _bar(label: str, interval: Interval, colour: int | None) -> Bar:
    return Bar(label, interval.mean, interval.low, interval.high, colour)


def _segments(plan: Plan) -> Picture:
    pairs = [
        PricePair(s.segment, s.today, s.best, s.best_low, s.best_high, (s.lowest, s.highest))
        for s in plan.segments[: MAX_SEGMENTS + 1]
    ]
    alt = "Today's mean price and the model's, by segment."
    return Picture(prices_by_segment(pairs), alt, name="prices")


def _demand(plan: Plan) -> Picture:
    demand, revenue = curves(plan.twin, worth=plan.worth)
    today = float(plan.twin.today.mean())
    figure = demand_curve(demand, revenue, seen=plan.twin.about.seen, today=today, unit=plan.currency)
    best = float(revenue.price[int(np.argmax(revenue.mean))])
    alt = f"Demand and revenue per customer over the price; one price for everyone would earn most near {best:.4g}."
    return Picture(figure, alt, caption="Bands: 95% over what the log leaves open.", name="demand")


PICTURES: dict[str, Callable[[Plan], Picture | None]] = {
    "losses": _losses, "paths": _paths, "epsilon": _epsilon, "opt-out": _opt_out, "prices": _segments,
    "demand": _demand,
}  # fmt: skip


def _prices(plan: Plan) -> Section:
    text = (
        "The model's prices are those that earn most for each customer, by the fitted demand and within the rules. 'At "
        "an end' are those for whom that is an end of what they may be quoted (dotted)."
    )
    rows = [one.row() for one in plan.segments[: MAX_SEGMENTS + 1]]
    unit = f", revenue in {plan.currency.strip()}" if plan.currency.strip() else ""
    table = Table(rows, f"Means over customers, today and by the model{unit}")
    drawn = (plan.pictures["prices"], plan.pictures["demand"])
    return Section("Prices and demand", "prices", text=(text,), tables=(table,), pictures=drawn)


def _model(plan: Plan) -> Section:
    twin, about = plan.twin, plan.twin.about
    se = np.full(2 * twin.dim, np.nan) if twin.covariance is None else np.sqrt(np.diag(twin.covariance))
    names = twin.names or tuple(f"z{j}" for j in range(twin.dim))
    d = twin.dim
    rows: list[dict[str, Any]] = [
        {
            "feature": name,
            "alpha": float(twin.alpha[j]),
            "se of alpha": float(se[j]),
            "beta": float(twin.beta[j]),
            "se of beta": float(se[d + j]),
        }
        for j, name in enumerate(names)
    ]
    text = [
        f"{twin.family.name.capitalize()} demand of {about.outcome} in {about.price}, fitted to {about.log}: "
        f"{about.log_rows:,} rows ({about.left_out:,} incomplete ones left out), prices seen {about.seen[0]:g} to "
        f"{about.seen[1]:g}. Utility is z.alpha - (z.beta) price, with z the standardised features."
    ]
    finding_rows = [{"severity": f.severity, "finding": f.text} for f in twin.findings]
    tables = [Table(rows, "Coefficients")]
    if finding_rows:
        tables.insert(0, Table(finding_rows, "What was found in the log and the prices allowed"))
    return Section("The model", "model", text=text, tables=tables)


def _check(plan: Plan) -> Section:
    check = plan.twin.about.check
    if check is None:
        return Section("Does the twin behave like the log?", "check", text=("It was not checked.",))
    text = [
        check.words(),
        "Chi-squared allows for the fit: what it forces to agree does not count."
        if check.same_rows
        else "The model was fitted to other rows; its error is part of the comparison.",
        f"Outcomes drawn at the logged prices have mean {check.mean_drawn:.4g} and standard deviation "
        f"{check.spread_drawn:.4g}; seen were {check.mean_seen:.4g} and {check.spread_seen:.4g}.",
    ]
    tables = [Table(check.summary(), "Seen against predicted demand", status_column="status")]
    for one in check.shown:
        tables.append(Table([_group(g) for g in one.groups[:MAX_GROUPS]], one.what.capitalize()))
    return Section("Does the twin behave like the log?", "check", text=text, tables=tables)


def _group(group: Any) -> dict[str, Any]:
    return {
        "group": group.name, "rows": round(group.rows), "seen": group.seen, "predicted": group.predicted,
        "gap in standard errors": None if group.z is None else round(group.z, 2),
    }  # fmt: skip


def _assumptions(plan: Plan) -> Section:
    twin = plan.twin
    drawn = "is drawn anew from the fitted model's normal distribution" if twin.covariance is not None else "is the fit"
    course = "stay as it was" if twin.drift is None else "move over the horizon as it did"
    text = [
        f"Customers are drawn with replacement from {len(twin.contexts.rows):,} rows of the log; in each replication "
        f"the truth {drawn}. Today's prices: {twin.about.today}. Prices allowed: {allowed_prices(twin)}. One unit of "
        f"price is worth {money(plan.worth, plan.currency)}.",
        "The model's prices are quoted without any more learning. Policies that learn start from nothing, "
        "or from the log where they say so.",
        *([_known_bounds(plan)] if any(option.partner for option in plan.options) else []),
        f"Demand is taken to {course} in the log, and customers not to react to being priced.",
    ]
    note = f"hushprice {__version__}, seed {plan.seed}. The policies in words: " + "; ".join(
        o.word for o in plan.options
    )
    return Section("What this rests on", "assumptions", text=text, note=note)


def _known_bounds(plan: Plan) -> str:
    """Description of what private policies learn from the log before they start."""
    twin = plan.twin
    wide, near = wide_radius(twin), confidence_radius(twin)
    bounds = [f"|z| is at most {usual_norm(twin):.3g} (its 99% quantile in the log)"]
    if twin.family.outcomes != "binary":
        bounds.append(f"demand at most {largest_demand(twin):.3g} (the largest that the model predicts)")
    if wide is not None:
        bounds.append(f"|theta| at most {wide:.3g} (twice that of the fit, more than the usual radius)")
    text = f"Private policies that start from nothing are told a little: {', '.join(bounds)}."
    return text if near is None else f"{text} From the log they search within {near:.3g} of the fitted theta."
