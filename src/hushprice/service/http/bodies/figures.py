"""The types of the figures that the dashboard shows: a product's summary, and the curve of a customer."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from hushprice.service.definition import Then
from hushprice.service.http.bodies.answers import Answer, GuardrailsInForce, Kind, ModeName, PriceRange

Computed = Annotated[float | None, Meta(description="Null if it is too large for a number.")]


class PhaseProgress(Answer):
    """How far the phase is."""

    done: int
    of: Annotated[int | None, Meta(description="Null if the phase has no end.")]
    words: Annotated[str, Meta(description="What is counted.")]


class PhaseNow(Answer):
    """How prices are set now."""

    name: str
    title: str
    words: str
    progress: Annotated[PhaseProgress | None, Meta(description="Null if nothing is counted, or nothing is learned.")]


class Guarantee(Answer):
    """What customers are promised; null where nothing is."""

    epsilon: float | None
    delta: float | None
    odds: Annotated[float | None, Meta(description="e to the epsilon.")]
    title: str
    words: str
    unseen: Annotated[str, Meta(description="Private products: what the server does not see.")] | UnsetType = UNSET


class FeatureLine(Answer):
    """A component of the context: a constant, or the ends of its slider."""

    name: str
    value: float | UnsetType = UNSET
    low: float | UnsetType = UNSET
    high: float | UnsetType = UNSET


class OutcomeRule(Answer):
    """When an offer without an outcome expires, and what it counts as then."""

    wait: Annotated[float, Meta(description="Seconds.")]
    then: Then


class Counts(Answer):
    """Counts since the start."""

    customers: int
    experiments: int
    far: Annotated[int, Meta(description="Prices more than a tenth of the range from the best known one; plain only.")]
    learned: int
    reports: int
    silent: int
    unasked: int
    stale: int
    outcomes: int
    late: int
    expired: int


class Sums(Answer):
    """Sums since the start: of prices and deviations over customers, of the others over outcomes."""

    price_sum: Computed
    deviation: Annotated[Computed, Meta(description="Distances from the best known prices, in ranges; plain only.")]
    quantity: Computed
    revenue: Computed
    profit: Computed


class History(Answer):
    """Some earlier moments, by columns; counts and sums are cumulative."""

    at: list[float]
    phase: list[str]
    customers: list[int]
    experiments: list[int]
    learned: list[int]
    theta_at: Annotated[list[int], Meta(description="The moments, by their place, of which theta has the estimates.")]
    theta: list[list[Computed]]
    outcomes: Annotated[list[int], Meta(description="This and the sums: plain products only.")] | UnsetType = UNSET
    far: list[int] | UnsetType = UNSET
    price_sum: list[Computed] | UnsetType = UNSET
    deviation: list[Computed] | UnsetType = UNSET
    quantity: list[Computed] | UnsetType = UNSET
    revenue: list[Computed] | UnsetType = UNSET
    profit: list[Computed] | UnsetType = UNSET


class Estimate(Answer):
    """A mean per customer, and the interval that holds it in 95 of 100 cases."""

    mean: Computed
    low: Computed
    high: Computed


class Earned(Estimate):
    """What the last customers earned."""

    n: Annotated[int, Meta(description="How many customers.")]
    baseline: Annotated[Estimate | None, Meta(description="Expected at the baseline; null if that is unknown.")]
    words: str
    more: Annotated[Estimate, Meta(description="The difference.")] | UnsetType = UNSET


class DemandChange(Answer):
    """The last change of demand that was found."""

    found: Annotated[int, Meta(description="Outcomes known when it was found.")]
    began: Annotated[int, Meta(description="Outcomes known when it began, by the best estimate.")]
    odds: Annotated[Computed, Meta(description="Odds of a change, when it was found.")]
    count: Annotated[int, Meta(description="Changes found so far.")]
    price_before: Annotated[Computed, Meta(description="Mean best price of the last customers, by the old estimate.")]
    price_now: Annotated[Computed, Meta(description="The same by the present estimate.")]
    words: str


class DemandMisfit(Answer):
    """A range of prices or of a feature in which demand does not follow the model."""

    feature: Annotated[int | None, Meta(description="Number of the feature, from 0; null for the price.")]
    low: Annotated[float | None, Meta(description="Null if it has no end, or all with the feature are meant.")]
    high: float | None
    outcomes: Annotated[Computed, Meta(description="Outcomes in the range; old ones count less.")]
    bought: Computed
    expected: Computed
    words: str


class SummaryAnswer(Answer):
    """All figures of a product that the dashboard shows."""

    product: str
    kind: Kind
    policy: str
    family: str
    currency: str
    version: int
    seq: int
    at: float
    mode: ModeName
    mode_words: str
    phase: PhaseNow
    guarantee: Guarantee
    dim: int
    features: list[FeatureLine]
    prices: PriceRange
    allowed: Annotated[PriceRange, Meta(description="The prices that the guardrails leave.")]
    ladder: list[float]
    cost: float
    baseline: Annotated[float, Meta(description="As quoted: within the guardrails.")]
    baseline_stated: float
    guardrails: GuardrailsInForce
    outcomes: OutcomeRule
    counts: Counts
    sums: Sums
    open_offers: int
    known: Annotated[bool, Meta(description="Whether there is an estimate.")]
    learned_now: int
    only_experiments: bool
    minutes: Annotated[
        list[Annotated[list[int], Meta(min_length=2, max_length=2)]],
        Meta(description="The last hour: starts of minutes, in seconds since 1970, and customers in them."),
    ]
    history: History
    earned: Annotated[Earned | None, Meta(description="Plain products, once there are two outcomes.")]
    change: Annotated[DemandChange | None, Meta(description="Plain products, if demand has changed.")]
    misfits: Annotated[list[DemandMisfit], Meta(description="Plain products; hardly ever a false alarm.")]


class CurvePoint(Answer):
    """Expected demand and revenue at a price."""

    price: float
    demand: Computed
    revenue: Computed


class BestPoint(CurvePoint):
    """The best price that the guardrails allow; the intervals only where there are bands."""

    price_low: float | UnsetType = UNSET
    price_high: float | UnsetType = UNSET
    more_low: Annotated[float | None, Meta(description="Of its gain over the baseline.")] | UnsetType = UNSET
    more_high: Computed | UnsetType = UNSET


class Bands(Answer):
    """How often bands hold the whole curve, and what they assume; or why there are none."""

    level: Annotated[float | None, Meta(description="Null if there are no bands.")]
    words: str


class CurveAnswer(Answer):
    """The curves of a hypothetical customer over a grid of prices; their bands, if there are any."""

    product: str
    version: int
    seq: int
    context: list[float]
    learned: Annotated[bool, Meta(description="Whether there is an estimate.")]
    cost: float
    prices: list[float]
    demand: list[Computed]
    revenue: list[Computed]
    best: BestPoint
    baseline: CurvePoint
    bands: Bands
    demand_low: list[Computed] | UnsetType = UNSET
    demand_high: list[Computed] | UnsetType = UNSET
    revenue_low: list[Computed] | UnsetType = UNSET
    revenue_high: list[Computed] | UnsetType = UNSET
