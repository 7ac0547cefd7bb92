"""Compare each published number with ours: the difference in standard errors, and a verdict.

The paper's number is assumed to have the standard error of 500 replications like ours, and that of its rounding:

    z = (ours - paper) / s,    s^2 = se^2 (1 + n / 500) + unit^2 / 12

    agrees           |z| <= 3, or the equivalent by Student's t; with fewer than 100 replications only if that bound is
                     at most a tenth of the number
    close            within 5%; for a claim about every cell: true of most
    too few          neither, but there are too few replications to decide
    differs          none of these; ``why`` gives the reason
    holds, fails     a comparison: lower in most cells, significantly so over all, and in none significantly higher
    open             a comparison that is not significant either way
    faster, slower   computing time, on another machine
    not judged       nothing to compare
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from hushprice import markets
from hushprice.errors import InvalidInput, unknown
from hushprice.markets.autoloan.market import Loans
from hushprice.paper.statistics import OF_CELLS, OF_PAIRS, RANGES, SURE, Pairs, folded, jackknife, lower, sure
from hushprice.simulation import Result
from hushprice.studies import CellResults, Choice

NEAR = 0.05  # largest relative difference that is close
COARSE = 0.1  # relative uncertainty above which nothing agrees if there are few replications
ENOUGH = 100  # fewest replications that are not few
Entry = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A published number or comparison next to ours.

    Attributes
    ----------
    item, what : str
        Figure or table, and description of the number.
    ours, paper, verdict : str
        Our number, the published one, and the verdict.
    value : float or None
        Our number, if it is one number.
    replications, se : int or None, float or None
        Replications behind our number, and its standard error.
    z, percent : float or None
        Difference in standard errors, and in percent of the published number.
    why : str
        Reason for a difference.
    synthetic : bool
        Whether it comes from the stand-in for the auto loan data.
    """

    item: str
    what: str
    ours: str
    paper: str
    verdict: str
    value: float | None = None
    replications: int | None = None
    se: float | None = None
    z: float | None = None
    percent: float | None = None
    why: str = ""
    synthetic: bool = False

    def row(self) -> dict[str, Any]:
        """The verdict as plain data."""
        return asdict(self)


def parsed(text: str) -> tuple[float, float, float]:
    """(low, high, unit of the last digit) of a printed number or range.

    >>> parsed("0.50"), parsed("10..100")
    ((0.5, 0.5, 0.01), (10.0, 100.0, 1.0))
    """
    low, _, high = text.partition("..")
    digits = len(low.partition(".")[2])
    return float(low), float(high or low), 10.0**-digits


def with_more_digits(value: float, text: str) -> str:
    """Our value with one more digit than the paper's (as many from 1000 on), so that a difference is visible."""
    digits = len(text.partition("..")[0].partition(".")[2]) + 1
    return f"{value:,.{max(digits - (abs(value) >= 1000), 0)}f}"


def judge(value: float, se: float, n: int, text: str, published: int) -> tuple[float | None, float, str]:
    """(z, percent, verdict) of our value next to a printed one."""
    low, high, unit = parsed(text)
    gap = min(value - low, 0.0) + max(value - high, 0.0)
    near = low if value < low else high
    percent = 100.0 * gap / abs(near) if near else math.inf
    close = abs(percent) <= 100.0 * NEAR
    if math.isnan(se):
        return None, percent, "close" if close else "too few"
    s = math.sqrt(se**2 * (1.0 + n / published) + unit**2 / 12.0)
    reach = sure(n) * s
    if abs(gap) > reach:
        return gap / s, percent, "close" if close else "differs"
    coarse = n < ENOUGH and reach > max(COARSE * abs(near), unit)
    return gap / s, percent, "agrees" if not coarse else "close" if close else "too few"


def paired(cell_results: CellResults, of: Choice, than: Choice) -> Pairs:
    """Pairs of cells at the same d and T."""
    chosen = [r for cell, r in cell_results if than.chooses(cell)]
    others = {(r.dim, r.horizon): r for r in chosen}
    if len(others) < len(chosen):
        raise InvalidInput("Two of the cells to compare with are at the same d and T: name a market or a label.")
    return [
        (r, others[r.dim, r.horizon]) for cell, r in cell_results if of.chooses(cell) and (r.dim, r.horizon) in others
    ]


def number_verdict(entry: Entry, cell_results: CellResults, published: int) -> Verdict | None:
    """The verdict on a number; None if the results that it needs are missing."""
    text, name = entry["paper"], entry["statistic"]
    fields = {"item": entry["item"], "what": entry["what"], "paper": text.replace("..", " to ")}
    if name in RANGES:
        pairs = paired(cell_results, Choice(**entry["of"]), Choice(**entry["than"]))
        return _range_verdict(fields, OF_PAIRS[RANGES[name]], pairs, entry.get("why", "")) if pairs else None
    computed = _computed(entry, cell_results)
    if computed is None or not math.isfinite(computed[0]):
        return None
    value, se, n = computed
    if name.startswith("seconds") and "than" not in entry:
        return _time_verdict(fields, value, n, float(text), judged=name == "seconds")
    z, percent, verdict = judge(value, se, n, text, published)
    if name == "sd" and n < ENOUGH and verdict != "agrees":
        verdict = "too few"
    return Verdict(
        **fields,
        value=value,
        ours=with_more_digits(value, text),
        replications=n,
        se=None if math.isnan(se) else se,
        z=z,
        percent=percent,
        verdict=verdict,
        why=_why(entry) if verdict == "differs" else "",
    )


def _computed(entry: Entry, cell_results: CellResults) -> tuple[float, float, int] | None:
    """(value, standard error, replications) of the statistic of an entry."""
    name, of = entry["statistic"], Choice(**entry["of"])
    if name in OF_CELLS:
        cells = [result for cell, result in cell_results if of.chooses(cell)]
        if not cells or (name.startswith("slope") and len(cells) < 3):
            return None
        try:
            return jackknife(lambda some: OF_CELLS[name](some, entry.get("offset", 0.0)), cells)
        except InvalidInput:  # no slope can be fitted to these cells yet
            return None
    if name not in OF_PAIRS:
        raise unknown("statistic", name, [*OF_CELLS, *OF_PAIRS, *RANGES])
    pairs = paired(cell_results, of, Choice(**entry["than"]))
    scale = entry.get("scale", 1.0)
    flat = [result for pair in pairs for result in pair]
    return jackknife(lambda some: scale * OF_PAIRS[name](folded(some)), flat) if flat else None


def _why(entry: Entry) -> str:
    """The stated reason for a difference, or a remark that there is none."""
    return str(entry.get("why", "")) or "We do not know why."


def _time_verdict(fields: Entry, value: float, n: int, theirs: float, *, judged: bool) -> Verdict:
    times = theirs / value if value > 0.0 else math.inf
    word = "not judged" if not judged else "faster" if times >= 1.0 else "slower"
    why = "" if not judged else f"{max(times, 1.0 / times):,.0f} times {word}"
    return Verdict(**fields, value=value, ours=f"{value:.3g}", replications=n, verdict=word, why=why)


def _range_verdict(fields: Entry, statistic: Callable[[Pairs], float], pairs: Pairs, why: str) -> Verdict:
    """Whether every pair of cells lies in the range, within chance."""
    low, high = (float(part) for part in fields["paper"].split(" to "))
    values, inside, least = [], 0, 10**9
    for pair in pairs:
        value, se, n = jackknife(lambda some: statistic(folded(some)), pair)
        reach = 0.0 if math.isnan(se) else sure(n) * se
        inside += low - reach <= value <= high + reach
        values.append(value)
        least = min(least, n)
    verdict = "agrees" if inside == len(pairs) else "close" if 2 * inside > len(pairs) else "differs"
    counted = f"{inside} of {len(pairs)} cells in the range, give or take chance."
    return Verdict(
        **fields,
        ours=f"{min(values):.3g} to {max(values):.3g}",
        replications=least,
        verdict=verdict,
        why=f"{counted} {why}".rstrip() if verdict != "agrees" else "",
    )


def claim_verdict(entry: Entry, cell_results: CellResults) -> Verdict | None:
    """The verdict on 'this is lower than that', cell by cell."""
    pairs = paired(cell_results, Choice(**entry["of"]), Choice(**entry["than"]))
    return _comparison(entry["item"], entry["what"], pairs, entry.get("measure", "regret"), entry)


def growth_verdicts(entry: Entry, cell_results: CellResults) -> list[Verdict | None]:
    """Whether regret grows with d, and slower than T, from each cell of a line to the next."""
    of = Choice(**entry["of"])
    chosen = [(cell, result) for cell, result in cell_results if of.chooses(cell)]
    by_d = _neighbours(chosen, lambda r: r.dim, lambda r: r.horizon)
    by_T = [(b, a) for a, b in _neighbours(chosen, lambda r: r.horizon, lambda r: r.dim)]
    return [
        _comparison(entry["item"], "regret grows with d", by_d, "other customers", entry),
        _comparison(entry["item"], "regret grows slower than T", by_T, "a round", entry),
    ]


def _neighbours(cell_results: CellResults, along: Callable[[Result], int], fixed: Callable[[Result], int]) -> Pairs:
    """Pairs of results of one label that are adjacent in d or T."""
    lines: dict[tuple[str, int], list[Result]] = {}
    for cell, result in cell_results:
        lines.setdefault((cell.label, fixed(result)), []).append(result)
    return [pair for line in lines.values() for pair in pairwise(sorted(line, key=along))]


def _comparison(item: str, what: str, pairs: Pairs, measure: str, entry: Entry) -> Verdict | None:
    if not pairs:
        return None
    scores = [lower(a, b, measure) for a, b in pairs]
    below, reverse = sum(score > 0.0 for score in scores), sum(score < -SURE for score in scores)
    pooled = sum(scores) / math.sqrt(len(scores))
    holds = reverse == 0 and 2 * below > len(pairs) and pooled > SURE
    open_ = not holds and reverse == 0 and abs(pooled) <= SURE
    beyond = f"Beyond chance the other way: {reverse}." if below < len(pairs) else ""
    return Verdict(
        item=item,
        what=what,
        ours=f"in {below} of {len(pairs)} cells",
        paper="yes",
        replications=min(r.replications for pair in pairs for r in pair),
        verdict="holds" if holds else "open" if open_ else "fails",
        why=" ".join(part for part in (beyond, "" if holds or open_ else _why(entry)) if part),
    )


def fact_verdict(entry: Entry, loans: Callable[[], Loans]) -> Verdict:
    """The verdict on a number that needs no simulation; for a range, whether ours lie in it."""
    values = [_fact(name, loans) for name in entry["facts"]]
    low, high, unit = parsed(entry["paper"])
    fields = {"item": entry["item"], "what": entry["what"], "paper": entry["paper"].replace("..", " to ")}
    ours = " to ".join(with_more_digits(value, entry["paper"]) for value in values)
    if len(values) > 1:
        return Verdict(**fields, ours=ours, verdict="holds" if low <= min(values) <= max(values) <= high else "fails")
    percent = 100.0 * (values[0] - low) / low
    same = abs(values[0] - low) <= 0.5001 * unit
    verdict = "agrees" if same else "close" if abs(percent) <= 100.0 * NEAR else "differs"
    why = _why(entry) if verdict == "differs" else ""
    return Verdict(**fields, value=values[0], ours=ours, percent=percent, verdict=verdict, why=why)


def coefficient_verdicts(entry: Entry, loans: Loans, names: Sequence[str]) -> list[Verdict]:
    """Verdicts on the fitted theta; for the stand-in, drawn from the published theta, whether a fit recovers it."""
    verdicts = []
    texts = [*entry["alpha"], *entry["beta"]]
    labels = [f"{part} of {name}" for part in ("alpha", "beta") for name in names]
    for label, text, value, se in zip(labels, texts, loans.fitted.theta, loans.standard_errors, strict=True):
        theirs, _, unit = parsed(text)
        z = (value - theirs) / math.sqrt(se**2 + unit**2 / 12.0)
        agrees = abs(z) <= sure(len(loans.z))
        verdicts.append(
            Verdict(
                item=entry["item"],
                what=label,
                value=float(value),
                ours=f"{value:.3f}",
                paper=text,
                se=float(se),
                z=float(z),
                percent=100.0 * (value - theirs) / abs(theirs),
                verdict="agrees" if agrees else "differs",
                why="" if agrees else _why(entry),
            )
        )
    return verdicts


def _fact(name: str, loans: Callable[[], Loans]) -> float:
    if name.startswith("s1-"):
        ends = markets.s1(dim=1).optimal_price([[1.0], [2.0]])  # the smallest and the largest context; any d is alike
        return float(ends.min() if name == "s1-lowest-price" else ends.max())
    if name == "s2-price":
        return float(markets.s2(dim=1).optimal_price([[1.0]])[0])
    facts = loans().facts()
    if name not in facts:
        raise unknown("fact", name, facts)
    return facts[name]


def spread_out(tables: Sequence[Entry]) -> list[dict[str, Any]]:
    """Tables of published numbers as one entry per number."""
    entries = []
    for table in tables:
        shared = {key: value for key, value in table.items() if key not in ("values", "dims", "why", "of")}
        for label, texts in table["values"].items():
            for dim, text in zip(table["dims"], texts, strict=True):
                at = f", d = {dim}" if len(table["dims"]) > 1 else ""
                of = table["of"] | {"labels": [label], "dims": [dim]}
                why = table.get("why", {}).get(label, "")
                what = f"{table['what']}, {label}{at}"
                entries.append(shared | {"paper": text, "what": what, "of": of, "why": why})
    return entries
