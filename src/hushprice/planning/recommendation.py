"""What to run, in words that say how sure they are.

Of today's prices, the model's prices and the policies that learn, the one that loses least is best; those that a paired
95% interval cannot tell from it are as good, and of these the simplest is taken: today's prices before the model's
before learning. Then

    stop      the model must not be used: keep today's prices and experiment
    keep      nothing earns more than today's prices
    unclear   something seems to earn more, but today's prices are among those as good, or it is a gain in fewer than
              four of five replications
    widen     there is a gain, but its prices are the end of the range or beyond those seen: experiment there first
    run       run it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hushprice.errors import InvalidInput
from hushprice.planning.lines import Interval, Line, paired

Verdict = Literal["run", "keep", "unclear", "widen", "stop"]
LIKELY = 0.8  # share of replications with a gain, from which it is acted on
MANY = 0.5  # share of customers priced at an end of the range, from which the range decides and not demand
SIMPLEST = ("today", "model", "learning")
EDGE = ("boundary-optimum", "rising-demand", "extrapolation")


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What is known besides the results.

    horizon: customers; prices: the range allowed; seen: the prices in the log; findings: of the model, as plain data;
    at_low, at_high: share of customers whose best price is that end of the range; uncertain: whether the truth was
    drawn anew in each replication; check: whether the twin's replay of the log holds, if it was made.
    """

    horizon: int
    currency: str = ""
    prices: tuple[float, float]
    seen: tuple[float, float]
    findings: Sequence[Mapping[str, str]] = ()
    at_low: float = 0.0
    at_high: float = 0.0
    uncertain: bool = True
    check: bool | None = None

    def money(self, value: float) -> str:
        """An amount in the currency.

        >>> Situation(horizon=1, prices=(0, 1), seen=(0, 1), currency="$").money(-1234.5)
        '-$1,234'
        """
        return money(value, self.currency)

    def both(self, value: float) -> str:
        """An amount over the horizon, and for 1,000 customers."""
        each = self.money(1000.0 * value / self.horizon)
        return f"{self.money(value)} over {self.horizon:,} customers ({each} per 1,000)"

    @property
    def on_edge(self) -> bool:
        """Whether the range decides the price rather than demand."""
        return self.at_low + self.at_high > MANY or any(f["code"] in EDGE for f in self.findings)


@dataclass(frozen=True)
class Recommendation:
    """A verdict, the option it is about, a headline, and the reasons and caveats as paragraphs."""

    verdict: Verdict
    choice: str
    headline: str
    reasons: tuple[str, ...]
    caveats: tuple[str, ...]

    def __str__(self) -> str:
        return "\n\n".join([self.headline, *self.reasons, *(f"Caveat: {text}" for text in self.caveats)])


def money(value: float, currency: str = "") -> str:
    """An amount, with as many digits as matter."""
    size = abs(value)
    digits = (
        f"{size:,.0f}"
        if size >= 100
        else f"{size:.1f}"
        if size >= 10
        else f"{size:.2f}"
        if size >= 0.1
        else f"{size:.2g}"
    )
    return f"{'-' if value < 0 and float(digits.replace(',', '')) else ''}{currency}{digits}"


def recommend(lines: Sequence[Line], now: Situation) -> Recommendation:
    """What to run, from the lines of a plan; the first is today's prices."""
    runs = sorted((one for one in lines if one.kind in SIMPLEST), key=lambda one: one.loss.mean)
    if not runs or not any(one.kind == "today" for one in runs):
        raise InvalidInput("A recommendation needs today's prices among the options.")
    today, best = next(one for one in runs if one.kind == "today"), runs[0]
    choice = _simplest([one for one in runs if not _worse(one, best).positive])
    verdict = _verdict(best, choice, now)
    chosen = today if verdict in ("keep", "unclear", "stop") else choice
    seeming = choice if choice is not today else best
    reasons = [
        *_gain(seeming, today, now),
        *_runner_up(seeming, runs, now),
        *_learning(lines, now),
        *_privacy(lines, now),
    ]
    headline = _HEADLINES[verdict](choice, best, now)
    return Recommendation(verdict, chosen.label, headline, tuple(reasons), tuple(_caveats(verdict, today, now)))


def _worse(one: Line, best: Line) -> Interval:
    """How much more it loses."""
    return Interval.of(paired(one.losses, best.losses))


def _simplest(lines: Sequence[Line]) -> Line:
    """The first of today's prices, the model's and those that learn; of the last, that which loses least."""
    return min(lines, key=lambda one: (SIMPLEST.index(one.kind), one.loss.mean))


def _verdict(best: Line, choice: Line, now: Situation) -> Verdict:
    if any(finding["severity"] == "stop" for finding in now.findings):
        return "stop"
    if choice.kind == "today":
        return "keep" if best.kind == "today" else "unclear"
    gain, probability = choice.gain, choice.probability
    if gain is None or probability is None or not gain.positive or probability < LIKELY:
        return "unclear"
    return "widen" if now.on_edge else "run"


def _run(choice: Line, best: Line, now: Situation) -> str:
    assert choice.gain is not None
    verb = "they earn" if choice.kind == "model" else "it earns"
    return f"Run {_named(choice)}: {verb} {now.both(choice.gain.mean)} more than today's prices."


def _keep(choice: Line, best: Line, now: Situation) -> str:
    return "Keep today's prices: nothing tried here earns more."


def _unclear(choice: Line, best: Line, now: Situation) -> str:
    other = best if choice.kind == "today" else choice
    return (
        f"Keep today's prices for now: there is not enough evidence to change them. The data cannot tell "
        f"{_named(other)} from today's prices with confidence."
    )


def _widen(choice: Line, best: Line, now: Situation) -> str:
    low, high = now.prices
    end = f"above {high:g}" if now.at_high >= now.at_low else f"below {low:g}"
    if now.at_low + now.at_high > MANY:
        share = max(now.at_low, now.at_high)
        return (
            f"Widen the price experiment before you rely on new prices. For {share:.0%} of customers the best price is "
            f"the end of the range they may be quoted (overall {low:g} to {high:g}): the data do not show where "
            f"revenue turns, so test prices {end} with care. If you cannot go there, what earns most within the range: "
            f"{_named(choice)}."
        )
    return (
        f"Widen the price experiment before you rely on new prices: the best ones rest on what the log does not show "
        f"(prices seen: {now.seen[0]:g} to {now.seen[1]:g}; allowed: {low:g} to {high:g}). {_capital(_named(choice))} "
        f"within the range would be the candidate."
    )


def _stop(choice: Line, best: Line, now: Situation) -> str:
    return (
        "Do not set prices from this model. Keep today's prices, and run an experiment that varies prices whoever the "
        "customer is."
    )


_HEADLINES = {"run": _run, "keep": _keep, "unclear": _unclear, "widen": _widen, "stop": _stop}


def _named(line: Line) -> str:
    return line.label if line.kind in ("today", "model") else f"the policy {line.label}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _gain(one: Line, today: Line, now: Situation) -> list[str]:
    """What the candidate gains over today's prices, and how sure that is."""
    gain, usual, wins = one.gain, one.usual, one.wins
    if gain is None or usual is None or wins is None:
        return []
    share = 100.0 * gain.mean / today.revenue.mean if today.revenue.mean else float("nan")
    verb = ("gain" if gain.mean >= 0 else "lose") + ("" if one.kind == "model" else "s")
    first = (
        f"{_capital(_named(one))} {verb} {now.both(abs(gain.mean))} against today's prices, {share:+.1f}% of their "
        f"revenue; 95% interval of the mean {now.money(gain.low)} to {now.money(gain.high)}. It is a gain in {wins} of "
        f"{one.replications} replications ({_sure(wins, one.replications)}), and in nine of ten it lies between "
        f"{now.money(usual[0])} and {now.money(usual[1])}."
    )
    return [first]


def _sure(wins: int, n: int) -> str:
    share = wins / n
    words = (
        (0.95, "sure, as far as the model goes"),
        (LIKELY, "likely"),
        (0.6, "not sure"),
        (0.4, "a toss-up"),
    )
    return next((word for least, word in words if share >= least), "unlikely")


def _runner_up(one: Line, runs: Sequence[Line], now: Situation) -> list[str]:
    others = [other for other in runs if other is not one and other.kind != "today"]
    if not others:
        return []
    other = others[0]
    gap = Interval.of(paired(other.losses, one.losses))
    if gap.low <= 0.0 <= gap.high or gap.low != gap.low:
        return [
            f"The data cannot tell {_named(other)} from {_named(one)}: the difference is {now.money(gap.mean)}, 95% "
            f"interval {now.money(gap.low)} to {now.money(gap.high)}. The simpler one is preferred."
        ]
    word = "ahead of" if gap.mean > 0 else "behind"
    return [
        f"It is {now.both(abs(gap.mean))} {word} the next best, {_named(other)} (95% interval "
        f"{now.money(gap.low)} to {now.money(gap.high)})."
    ]


def _learning(lines: Sequence[Line], now: Situation) -> list[str]:
    """What more learning could bring, and what it costs to learn from nothing."""
    model = next((one for one in lines if one.kind == "model"), None)
    learners = [one for one in lines if one.kind == "learning"]
    if model is None:
        return []
    text = (
        f"However much more is learned, it cannot gain more over the model's prices than {now.both(model.loss.mean)}: "
        f"that is what they lose against knowing demand."
    )
    if learners:
        best = min(learners, key=lambda one: one.loss.mean)
        text += (
            f" The policies that learn start from nothing and pay for their own experiments; the best of them, "
            f"{best.label}, loses {now.money(best.loss.mean)} and experiments with {best.experiments:.0%} of customers."
        )
    return [text]


def _privacy(lines: Sequence[Line], now: Situation) -> list[str]:
    """What privacy costs at each epsilon and share of customers who opt out."""
    told = []
    for from_log, name in ((False, "from nothing"), (True, "started from the log")):
        curve = [one for one in lines if one.kind == "private" and one.epsilon is not None and one.from_log is from_log]
        costs = [
            f"{now.money(one.privacy.mean)} at epsilon {one.epsilon:g}{_everyone(one)}"
            for one in curve
            if one.privacy is not None
        ]
        if costs:
            told.append(f"Learning under local differential privacy, {name}, costs against etc: {', '.join(costs)}.")
    shares = [one for one in lines if one.kind == "opt-out" and one.privacy is not None]
    if shares:
        costs = [f"{now.money(one.privacy.mean)} if {one.opt_out:.0%} opt out" for one in shares if one.privacy]
        told.append(f"Letting customers choose (epsilon {shares[0].epsilon:g}) costs against etc: {', '.join(costs)}.")
    if told:
        told.append("Today's and the model's prices ask customers for nothing: there privacy is free.")
    return told


def _everyone(line: Line) -> str:
    return " (it experiments with everyone)" if line.experiments > 0.999 else ""


def _caveats(verdict: Verdict, today: Line, now: Situation) -> list[str]:
    told = [finding["text"] for finding in now.findings if finding["severity"] in ("stop", "care")]
    if now.check is None:
        told.append("The twin was not checked against the log.")
    elif not now.check:
        told.append("The twin fails to reproduce the log in some respect; see its self-check. Read amounts with care.")
    if not now.uncertain:
        told.append("The truth was not drawn: all this takes the fitted model for certain and is too sure of itself.")
    if today.loss.mean < 0.0:
        told.append("Today's prices leave the allowed range and earn more there than the best price within it.")
    told.append("Demand is taken to stay as in the log: no competitors that react, no customers that wait or tell.")
    return told
