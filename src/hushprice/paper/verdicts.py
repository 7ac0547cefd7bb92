"""Each published number with ours: the difference in standard errors, and a word for it.

A statistic is computed from replications, its standard error by leaving out a twentieth of them at a time (jackknife).
The paper's number is taken to have the standard error of 500 such replications, and that of its rounding:

    z = (ours - paper) / sqrt(se^2 (1 + n / 500) + unit^2 / 12)

    agrees           |z| <= 3, or as far as is as sure by the t distribution when there are few replications
    close            within 5%
    too few          a spread of less than 100 replications
    differs          neither; ``why`` says why
    faster, slower   computing time, on another machine
    holds, fails     a comparison, cell by cell
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from hushprice import markets
from hushprice.errors import Array, InvalidInput, unknown
from hushprice.markets.autoloan import Loans
from hushprice.simulation import Result, fit_scaling
from hushprice.studies import Cell, Panel

Found = Sequence[tuple[Cell, Result]]
Pairs = list[tuple[Result, Result]]
GROUPS = 20  # of replications, for the jackknife
NEAR = 0.05  # a relative difference that is close
SURE = 3.0  # standard errors that make a difference
ENOUGH = 100  # replications for a spread, which a few of them decide


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One published number or comparison, with ours."""

    item: str
    what: str
    ours: str
    paper: str
    replications: int | None = None
    se: float | None = None
    z: float | None = None  # difference in standard errors
    percent: float | None = None  # difference in percent of the paper's
    verdict: str
    why: str = ""

    def row(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


# --- statistics: of the cells chosen, and where there is a `than`, of them next to others ----------------------------


def _one(cells: Sequence[Result]) -> Result:
    if len(cells) != 1:
        raise InvalidInput(f"A statistic of one cell was asked of {len(cells)}.")
    return cells[0]


def _sd(values: Array) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan


def path_slope(result: Result, offset: float) -> float:
    """Slope of log(mean regret at t) - offset log log t in log t, over the checkpoints."""
    t = result.checkpoints.astype(float)
    response = np.log(result.path_mean()) - offset * np.log(np.log(t))
    return float(np.polyfit(np.log(t), response, 1)[0])


OF_CELLS: dict[str, Callable[[Sequence[Result], float], float]] = {
    "mean": lambda cells, _: float(_one(cells).regret.mean()),
    "sd": lambda cells, _: _sd(_one(cells).regret),
    "seconds": lambda cells, _: float(_one(cells).seconds.mean()),
    "seconds-sd": lambda cells, _: _sd(_one(cells).seconds),
    "slope-d": lambda cells, offset: fit_scaling(cells, offset=offset).slope_d,
    "slope-T": lambda cells, offset: fit_scaling(cells, offset=offset).slope_T,
    "path-slope": lambda cells, offset: path_slope(_one(cells), offset),
}


def _ratios(pairs: Pairs) -> Array:
    return np.array([a.regret.mean() / b.regret.mean() for a, b in pairs])


def _seconds(pairs: Pairs) -> Array:
    return np.array([a.seconds.mean() / b.seconds.mean() for a, b in pairs])


OF_PAIRS: dict[str, Callable[[Pairs], float]] = {
    "ratio": lambda pairs: float(_ratios(pairs).mean()),
    "saving": lambda pairs: 100.0 * (1.0 - float(_ratios(pairs).mean())),
    "difference": lambda pairs: float(np.mean([a.regret.mean() - b.regret.mean() for a, b in pairs])),
    "seconds-ratio": lambda pairs: float(_seconds(pairs).mean()),
}
RANGES = {"saving-range": "saving", "seconds-ratio-range": "seconds-ratio"}
"""Claims about every pair of cells, by the statistic of one pair."""


def jackknife(statistic: Callable[[Sequence[Result]], float], cells: Sequence[Result]) -> tuple[float, float, int]:
    """(value, standard error, replications) of a statistic; NaN for the error of one replication."""
    n = min(result.replications for result in cells)
    value = statistic(cells)
    groups = min(GROUPS, n)
    if groups < 3:
        return value, math.nan, n
    left_out = [statistic([_without(result, k, groups) for result in cells]) for k in range(groups)]
    return value, math.sqrt((groups - 1) ** 2 / groups * float(np.var(left_out, ddof=1))), n


def _without(result: Result, k: int, groups: int) -> Result:
    keep = np.arange(result.replications) % groups != k
    return replace(
        result, paths=result.paths[keep], revenue=result.revenue[keep], exploration=result.exploration[keep],
        seconds=result.seconds[keep],
    )  # fmt: skip


def paired(found: Found, of: Panel, than: Panel) -> Pairs:
    """Cells at the same d and T."""
    others = {(r.dim, r.horizon): r for cell, r in found if than.chooses(cell)}
    return [
        (r, others[r.dim, r.horizon]) for cell, r in found if of.chooses(cell) and (r.dim, r.horizon) in others
    ]  # fmt: skip


# --- verdicts ---------------------------------------------------------------------------------------------------------


def parsed(text: str) -> tuple[float, float, float]:
    """(low, high, unit of the last digit) of a printed number or range.

    >>> parsed("0.50"), parsed("10..100")
    ((0.5, 0.5, 0.01), (10.0, 100.0, 1.0))
    """
    low, _, high = text.partition("..")
    digits = len(low.partition(".")[2])
    return float(low), float(high or low), 10.0**-digits


def sure(replications: int) -> float:
    """The standard errors that are as unlikely to be exceeded as 3 are when there are plenty of replications."""
    groups = min(GROUPS, replications)
    return float(stats.t.isf(stats.norm.sf(SURE), groups - 1))


def judge(value: float, se: float, n: int, text: str, published: int) -> tuple[float | None, float, str]:
    """(z, percent, verdict) of our value next to a printed one."""
    low, high, unit = parsed(text)
    gap = min(value - low, 0.0) + max(value - high, 0.0)
    near = low if value < low else high
    percent = 100.0 * gap / abs(near) if near else math.inf
    if math.isnan(se):
        return None, percent, "close" if abs(percent) <= 100.0 * NEAR else "differs"
    z = gap / math.sqrt(se**2 * (1.0 + n / published) + unit**2 / 12.0)
    if abs(z) <= sure(n):
        return z, percent, "agrees"
    return z, percent, "close" if abs(percent) <= 100.0 * NEAR else "differs"


def shown(value: float, text: str) -> str:
    """Ours with one digit more than the paper's, so that a difference can be seen."""
    digits = len(text.partition("..")[0].partition(".")[2]) + 1
    return f"{value:,.{max(digits - (abs(value) >= 1000), 0)}f}"


def number_verdict(entry: Mapping[str, Any], found: Found, published: int) -> Verdict | None:
    """The verdict on a number, or None while nothing has been simulated that it can be computed from."""
    text, name = entry["paper"], entry["statistic"]
    told = {"item": entry["item"], "what": entry["what"], "paper": text.replace("..", " to ")}
    of = chooser(entry["of"])
    if name in OF_CELLS:
        cells = [result for cell, result in found if of.chooses(cell)]
        offset = entry.get("offset", 0.0)
        if not cells or (name.startswith("slope") and len(cells) < 3):
            return None
        value, se, n = jackknife(lambda some: OF_CELLS[name](some, offset), cells)
        if name.startswith("seconds"):
            return _time_verdict(told, value, n, float(text))
    elif name in OF_PAIRS or name in RANGES:
        pairs = paired(found, of, chooser(entry["than"]))
        if not pairs:
            return None
        if name in RANGES:
            return _range_verdict(told, OF_PAIRS[RANGES[name]], pairs, entry.get("why", ""))
        flat = [result for pair in pairs for result in pair]
        scale = entry.get("scale", 1.0)
        value, se, n = jackknife(lambda some: scale * OF_PAIRS[name](_folded(some)), flat)
    else:
        raise unknown("statistic", name, [*OF_CELLS, *OF_PAIRS, *RANGES])
    z, percent, verdict = judge(value, se, n, text, published)
    if name == "sd" and n < ENOUGH:
        verdict = "too few"
    why = entry.get("why", "") if verdict == "differs" else ""
    return Verdict(
        **told, ours=shown(value, text), replications=n, se=_known(se), z=z, percent=percent, verdict=verdict, why=why
    )


def _folded(flat: Sequence[Result]) -> Pairs:
    return [(flat[i], flat[i + 1]) for i in range(0, len(flat), 2)]


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _time_verdict(told: Mapping[str, Any], value: float, n: int, theirs: float) -> Verdict:
    times = theirs / value if value > 0 else math.inf
    word = "faster" if times >= 1.0 else "slower"
    why = f"{times:,.0f} times {word}" if times >= 1.0 else f"{1.0 / times:,.1f} times slower"
    return Verdict(**told, ours=f"{value:.3g}", replications=n, verdict=word, why=why)


def _range_verdict(told: Mapping[str, Any], statistic: Callable[[Pairs], float], pairs: Pairs, why: str) -> Verdict:
    """Whether every pair of cells lies in the range, or no further from it than chance may put it."""
    low, high = (float(part) for part in told["paper"].split(" to "))
    values, inside, least = [], 0, 10**9
    for pair in pairs:
        value, se, n = jackknife(lambda some: statistic(_folded(some)), pair)
        reach = 0.0 if math.isnan(se) else sure(n) * se
        inside += low - reach <= value <= high + reach
        values.append(value)
        least = min(least, n)
    verdict = "agrees" if inside == len(pairs) else "close" if 2 * inside > len(pairs) else "differs"
    counted = f"{inside} of {len(pairs)} cells in the range, give or take 3 standard errors."
    return Verdict(
        **told,
        ours=f"{min(values):.3g} to {max(values):.3g}",
        replications=least,
        verdict=verdict,
        why=f"{counted} {why}".rstrip() if verdict != "agrees" else "",
    )


def claim_verdict(entry: Mapping[str, Any], found: Found) -> Verdict | None:
    """The verdict on 'this is lower than that': cell by cell, on the same customers."""
    pairs = paired(found, chooser(entry["of"]), chooser(entry["than"]))
    if not pairs:
        return None
    lower, reversed_ = 0, 0
    for a, b in pairs:
        n = min(a.replications, b.replications)
        one, other = (a.seconds, b.seconds) if entry.get("seconds") else (a.regret, b.regret)
        gap = one[:n] - other[:n]
        lower += gap.mean() < 0.0
        reversed_ += n > 1 and gap.mean() > SURE * _sd(gap) / math.sqrt(n)
    holds = reversed_ == 0 and 2 * lower > len(pairs)
    beyond = f"{reversed_} beyond 3 standard errors the other way." if lower < len(pairs) else ""
    why = " ".join(part for part in (beyond, "" if holds else entry.get("why", "")) if part)
    return Verdict(
        item=entry["item"],
        what=entry["what"],
        ours=f"in {lower} of {len(pairs)} cells",
        paper="yes",
        replications=min(r.replications for pair in pairs for r in pair),
        verdict="holds" if holds else "fails",
        why=why,
    )


def fact_verdict(entry: Mapping[str, Any], loans: Loans | None) -> Verdict:
    """The verdict on a number that needs no simulation."""
    value = _facts(entry["fact"], loans)
    _, _, unit = parsed(entry["paper"])
    theirs = float(entry["paper"])
    percent = 100.0 * (value - theirs) / theirs
    same = abs(value - theirs) <= 0.5001 * unit
    verdict = "agrees" if same else "close" if abs(percent) <= 100.0 * NEAR else "differs"
    return Verdict(
        item=entry["item"], what=entry["what"], ours=shown(value, entry["paper"]), paper=entry["paper"],
        percent=percent, verdict=verdict, why="" if same else entry.get("why", ""),
    )  # fmt: skip


def coefficient_verdicts(entry: Mapping[str, Any], loans: Loans, names: Sequence[str]) -> list[Verdict]:
    """The fitted theta next to the published one; on the stand-in, which is drawn from that, it says whether the fit
    recovers it."""
    found = []
    texts = [*entry["alpha"], *entry["beta"]]
    labels = [f"{part} of {name}" for part in ("alpha", "beta") for name in names]
    for label, text, value, se in zip(labels, texts, loans.fitted.theta, loans.standard_errors, strict=True):
        z = (value - float(text)) / math.sqrt(se**2 + parsed(text)[2] ** 2 / 12.0)
        found.append(
            Verdict(
                item=entry["item"],
                what=label,
                ours=f"{value:.3f}",
                paper=text,
                se=float(se),
                z=float(z),
                percent=100.0 * (value - float(text)) / abs(float(text)),
                verdict="agrees" if abs(z) <= SURE else "differs",
            )
        )
    return found


def _facts(name: str, loans: Loans | None) -> float:
    if name.startswith("s1-"):
        ends = markets.s1(dim=1).optimal_price([[1.0], [2.0]])  # the smallest and the largest context; any d is alike
        return float(ends.min() if name == "s1-lowest-price" else ends.max())
    if name == "s2-price":
        return float(markets.s2(dim=1).optimal_price([[1.0]])[0])
    assert loans is not None
    told = {
        "loan-rows": "rows",
        "loan-norm": "norm limit",
        "loan-sensitivity": "sensitivity limit",
        "loan-kept": "kept",
        "loan-lowest-price": "lowest optimal price",
        "loan-highest-price": "highest optimal price",
    }
    if name not in told:
        raise unknown("fact", name, told)
    return loans.facts()[told[name]]


def chooser(chosen: Mapping[str, Any]) -> Panel:
    """Which cells an entry is about."""
    return Panel(panel="", **chosen)


def spread_out(tables: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tables of published numbers as one entry a number."""
    entries = []
    for table in tables:
        shared = {key: value for key, value in table.items() if key not in ("values", "dims", "why", "of")}
        for label, texts in table["values"].items():
            for dim, text in zip(table["dims"], texts, strict=True):
                at = f", d = {dim}" if len(table["dims"]) > 1 else ""
                entries.append(
                    shared
                    | {
                        "paper": text,
                        "what": f"{table['what']}, {label}{at}",
                        "of": table["of"] | {"labels": [label], "dims": [dim]},
                        "why": table.get("why", {}).get(label, ""),
                    }
                )
    return entries
