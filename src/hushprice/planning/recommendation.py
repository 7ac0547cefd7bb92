"""Recommend an option of a plan, with reasons and their uncertainty.

Of today's prices, the model's prices and the learning policies, the best one loses least. Those whose paired 95%
interval of the difference from it contains 0 are as good. The choice is the simplest of these: today's prices before
the model's before learning. Then the verdict is

    stop      the model must not be used: keep today's prices and experiment
    keep      nothing earns more than today's prices
    unclear   an option seems to earn more, but its difference from today's prices is not significant, or the lower
              bound (Clopper and Pearson) of the probability of a gain is below four fifths
    widen     there is a gain, but its prices are ends of the range or beyond the logged prices, or the price effect is
              uncertain: experiment first
    run       run it

There are two kinds of uncertainty. More replications reduce the Monte Carlo error. The uncertainty of the log remains;
it shows in the share of replications with a gain, as each draws another truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hushprice.errors import InvalidInput
from hushprice.fitting import Finding
from hushprice.markets.twin.places import Place, words_of
from hushprice.planning.option_results import Interval, Line, money, paired, share_bounds

Verdict = Literal["run", "keep", "unclear", "widen", "stop"]
PLACES_NAMED = 2  # of those where demand does not follow the model
LIKELY = 0.8  # probability of a gain from which to act
SIMPLEST = ("today", "model", "learning")
EDGE = ("unsure-price-effect", "rising-demand", "boundary-optimum", "extrapolation")
KEEP = "Keep today's prices: nothing tried here earns more."
STOP_TEXT = (
    "Do not set prices from this model. Keep today's prices, and run an experiment that varies prices whoever the "
    "customer is."
)


@dataclass(frozen=True, kw_only=True)
class Situation:
    """The facts besides the results on which a recommendation depends.

    Attributes
    ----------
    horizon : int
        Customers.
    currency : str
        Currency sign.
    allowed : str
        Description of the allowed prices.
    findings : sequence of Finding
        Findings of the twin.
    uncertain : bool
        Whether each replication draws its own truth.
    check : bool or None
        Whether the twin's replay of the log holds; None if it was not made.
    stepwise : bool
        Whether a largest step excludes private options.
    drifts : bool
        Whether demand follows the course that it took in the log.
    misfits : sequence of Place
        Where demand does not follow the model, if the replay does not hold.
    """

    horizon: int
    currency: str = ""
    allowed: str
    findings: Sequence[Finding] = ()
    uncertain: bool = True
    check: bool | None = None
    stepwise: bool = False
    drifts: bool = False
    misfits: Sequence[Place] = ()

    def money(self, value: float) -> str:
        """An amount in the currency.

        Parameters
        ----------
        value : float
            An amount.

        Returns
        -------
        str
            The amount with the sign of the currency.

        Examples
        --------
        >>> Situation(horizon=1, allowed="0 to 1", currency="$").money(-1234.5)
        '-$1,234'
        """
        return money(value, self.currency)

    def both(self, value: float) -> str:
        """An amount over the horizon, and per 1,000 customers.

        Parameters
        ----------
        value : float
            An amount over the horizon.
        """
        each = self.money(1000.0 * value / self.horizon)
        return f"{self.money(value)} over {self.horizon:,} customers ({each} per 1,000)"

    @property
    def edge(self) -> Finding | None:
        """The finding that calls for a wider experiment first, if there is one."""
        return next((f for code in EDGE for f in self.findings if f.code == code and f.severity == "warning"), None)

    @property
    def replications(self) -> str:
        """Description of a replication."""
        return "each with another truth that the log allows" if self.uncertain else "each with other customers"


@dataclass(frozen=True)
class Recommendation:
    """The recommendation of a plan.

    Attributes
    ----------
    verdict : {"run", "keep", "unclear", "widen", "stop"}
        What to do; see this module's documentation.
    choice : str
        Label of the option to run.
    headline : str
        The recommendation in one sentence.
    reasons : tuple of str
        Paragraphs with reasons.
    caveats : tuple of Finding
        Findings that limit it.
    """

    verdict: Verdict
    choice: str
    headline: str
    reasons: tuple[str, ...]
    caveats: tuple[Finding, ...]

    def __str__(self) -> str:
        return "\n\n".join([self.headline, *self.reasons, *(f"Caveat: {caveat.text}" for caveat in self.caveats)])


def recommend(lines: Sequence[Line], now: Situation) -> Recommendation:
    """Recommend an option.

    Parameters
    ----------
    lines : sequence of Line
        The lines of a plan.
    now : Situation
        The facts besides the results.

    Returns
    -------
    Recommendation
        Verdict, option, headline, reasons and caveats.

    Raises
    ------
    InvalidInput
        If today's prices are not among the lines.
    """
    runs = sorted((one for one in lines if one.kind in SIMPLEST), key=lambda one: one.loss.mean)
    if not runs or not any(one.kind == "today" for one in runs):
        raise InvalidInput("A recommendation needs today's prices among the options.")
    today, best = next(one for one in runs if one.kind == "today"), runs[0]
    choice = _simplest([one for one in runs if not _ahead(best, one).positive])
    verdict = _verdict(best, choice, now)
    chosen = today if verdict in ("keep", "unclear", "stop") else choice
    seeming = choice if choice is not today else best
    reasons = [
        *_gain(seeming, today, now),
        *_runner_up(seeming, runs, now),
        *_learning(lines, now),
        *_privacy(lines, now),
    ]
    headline = _headline(verdict, seeming, now)
    return Recommendation(verdict, chosen.label, headline, tuple(reasons), tuple(_caveats(verdict, today, now)))


def _ahead(one: Line, other: Line) -> Interval:
    """The loss of the second minus that of the first."""
    return Interval.of(paired(other.losses, one.losses))


def _simplest(lines: Sequence[Line]) -> Line:
    """Today's prices before the model's before learning; of the learning ones, the one that loses least."""
    return min(lines, key=lambda one: (SIMPLEST.index(one.kind), one.loss.mean))


def _verdict(best: Line, choice: Line, now: Situation) -> Verdict:
    if any(finding.severity == "stop" for finding in now.findings):
        return "stop"
    gain, chances = choice.gain, choice.chances
    if gain is None or chances is None:
        return "keep" if best.kind == "today" else "unclear"
    if not gain.positive or chances[0] < LIKELY:
        return "unclear"
    return "run" if now.edge is None else "widen"


def _headline(verdict: Verdict, one: Line, now: Situation) -> str:
    """The verdict on the option that seems best."""
    if verdict in ("keep", "stop") or one.gain is None:
        return STOP_TEXT if verdict == "stop" else KEEP
    if verdict == "unclear":
        few = one.gain.positive and one.wins == one.replications
        if few:
            return (
                f"{one.replications} replications are too few for a recommendation, though {_named(one)} gained in all "
                f"of them. Run more: --replications 40."
            )
        return f"Keep today's prices for now: there is not enough evidence to change them. {_doubt(one, now)}"
    if verdict == "widen" and now.edge is not None:
        return (
            f"Widen the price experiment before you rely on new prices. {now.edge.text} Of what was tried within the "
            f"prices allowed ({now.allowed}), {_named(one)} {_verb(one, 'earn')} most."
        )
    pronoun = "they" if one.kind == "model" else "it"
    return f"Run {_named(one)}: {pronoun} {_verb(one, 'earn')} {now.both(one.gain.mean)} more than today's prices."


def _doubt(one: Line, now: Situation) -> str:
    """Whether the log or the replications leave it open."""
    assert one.wins is not None
    n, name = one.replications, _named(one)
    if share_bounds(one.wins, n)[1] >= LIKELY:
        return f"These {n} replications cannot tell {name} from today's prices for sure: run more of them."
    return f"{_capital(name)} {_verb(one, 'earn')} more in only {one.wins} of {n} replications, {now.replications}."


def _named(line: Line) -> str:
    return line.label if line.kind in ("today", "model") else f"the policy {line.label}"


def _verb(line: Line, verb: str) -> str:
    """Prices earn, a policy earns."""
    return verb if line.kind in ("today", "model") else f"{verb}s"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _gain(one: Line, today: Line, now: Situation) -> list[str]:
    """The candidate's gain over today's prices and its uncertainty."""
    gain, usual, wins = one.gain, one.usual, one.wins
    if gain is None or usual is None or wins is None:
        return []
    base = today.revenue.mean
    share = f", {gain.mean / base:+.1%} of their revenue" if base > 0.0 else ""
    verb = _verb(one, "gain" if gain.mean >= 0 else "lose")
    return [
        f"{_capital(_named(one))} {verb} {now.both(abs(gain.mean))} against "
        f"today's prices{share}, on average over {one.replications} replications, "
        f"{now.replications}; 95% interval of this average {now.money(gain.low)} to {now.money(gain.high)}. It is a "
        f"gain in {wins} of {one.replications} ({_sure(wins, one.replications)}), and in nine of ten it lies between "
        f"{now.money(usual[0])} and {now.money(usual[1])}."
    ]


def _sure(wins: int, n: int) -> str:
    """The probability of a gain, in words that hold for its bounds and not only for the observed share."""
    (low, high), share = share_bounds(wins, n), wins / n
    words = ((0.95, "sure, as far as the model goes"), (0.9, "very likely"), (LIKELY, "likely"))
    if low >= LIKELY:
        return next(word for least, word in words if low >= least)
    if share >= LIKELY:
        return "too few to be sure"
    return "unlikely" if high < 0.5 else "a toss-up" if share <= 0.6 else "not sure"


def _runner_up(one: Line, runs: Sequence[Line], now: Situation) -> list[str]:
    others = [other for other in runs if other is not one and other.kind != "today"]
    if not others:
        return []
    other, gap = others[0], _ahead(one, others[0])
    between = f"{now.money(gap.low)} to {now.money(gap.high)}"
    if not (gap.low > 0.0 or gap.high < 0.0):
        return [
            f"These {min(one.replications, other.replications)} replications cannot tell {_named(other)} from "
            f"{_named(one)}: on average the difference is {now.money(gap.mean)}, 95% interval {between}. The simpler "
            f"one is preferred; more replications would tell."
        ]
    verb, word = "are" if one.kind in ("today", "model") else "is", "ahead of" if gap.mean > 0 else "behind"
    return [
        f"{_capital(_named(one))} {verb} {now.both(abs(gap.mean))} {word} the next best, {_named(other)} (95% interval "
        f"of this average {between})."
    ]


def _learning(lines: Sequence[Line], now: Situation) -> list[str]:
    """The possible gain of more learning, and the cost of learning without a log."""
    model = next((one for one in lines if one.kind == "model"), None)
    learners = [one for one in lines if one.kind == "learning"]
    if model is None:
        return []
    text = (
        f"However much more is learned, it cannot gain more over the model's prices than {now.both(model.loss.mean)}: "
        f"that is what they lose against knowing demand."
    )
    for from_log, start in ((False, "from nothing"), (True, "from the log")):
        some = [one for one in learners if one.from_log is from_log]
        if some:
            best = min(some, key=lambda one: one.loss.mean)
            text += (
                f" Of the policies that learn {start}, {best.label.removesuffix(', from the log')} loses least: "
                f"{now.money(best.loss.mean)}."
            )
    return [text]


def _privacy(lines: Sequence[Line], now: Situation) -> list[str]:
    """The price of privacy at each epsilon and share of customers who opt out."""
    sentences = []
    for from_log, name in ((False, "from nothing"), (True, "started from the log")):
        curve = [one for one in lines if one.kind == "private" and one.epsilon is not None and one.from_log is from_log]
        costs = [
            f"{_cost(one.privacy, now)} at epsilon {one.epsilon:g}{_everyone(one)}"
            for one in curve
            if one.privacy is not None
        ]
        if costs:
            sentences.append(
                f"Learning under local differential privacy, {name}, costs against etc: {', '.join(costs)}."
            )
    shares = [one for one in lines if one.kind == "opt-out" and one.privacy is not None]
    if shares:
        costs = [f"{_cost(one.privacy, now)} if {one.opt_out:.0%} opt out" for one in shares if one.privacy]
        sentences.append(
            f"Letting customers choose (epsilon {shares[0].epsilon:g}) costs against etc: {', '.join(costs)}."
        )
    if sentences:
        sentences.append("Today's and the model's prices ask customers for nothing: there privacy is free.")
    return sentences


def _cost(price: Interval, now: Situation) -> str:
    """An amount, or a statement that its difference from 0 is not significant."""
    if price.low <= 0.0 <= price.high and price.low < price.high:
        return f"nothing that can be told from 0 ({now.money(price.low)} to {now.money(price.high)})"
    return now.money(price.mean)


def _everyone(line: Line) -> str:
    return " (it experiments with everyone)" if line.experiments > 0.999 else ""


def _caveats(verdict: Verdict, today: Line, now: Situation) -> list[Finding]:
    """Findings that limit the recommendation, except those in the headline."""
    edge = now.edge if verdict == "widen" else None
    caveats = [finding for finding in now.findings if finding.severity != "note" and finding is not edge]
    own = (
        (now.check is None, "not-checked", "The twin was not checked against the log."),
        (
            now.check is False,
            "check-fails",
            f"The twin fails to reproduce the log in some respect; see its self-check. Read amounts with care. "
            f"{words_of(now.misfits, most=PLACES_NAMED)}".rstrip(),
        ),
        (
            not now.uncertain,
            "truth-not-drawn",
            "The truth was not drawn: all this takes the fitted model for certain and is too sure of itself.",
        ),
        (
            today.loss.mean < 0.0,
            "today-outside",
            "Today's prices leave the allowed range and earn more there than the best price within it.",
        ),
        (
            now.stepwise,
            "no-private-options",
            "Private policies are left out, as they cannot keep to a largest step: the last price would have to leave "
            "the device. Give the segments narrower ranges instead to see what privacy costs.",
        ),
    )
    stays = (
        "Demand is taken to follow the course that it took in the log: no competitors that react, no customers that "
        "wait or tell."
        if now.drifts
        else "Demand is taken to stay as in the log: no competitors that react, no customers that wait or tell."
    )
    caveats += [Finding(code, "warning", text) for holds, code, text in own if holds]
    return [*caveats, Finding("demand-stays", "note", stays)]
