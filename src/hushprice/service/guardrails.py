"""Guardrails: limits on prices that are added to a policy's own rules while it runs.

    p in [low, high], on the ladder if there is one, and within the largest step if there is one

They apply to every quote, including experiments, and only narrow the rules: the smaller of two largest steps holds, and
a ladder must be a subset of the rules' own. Guardrails that leave no price are refused when they are set, not when a
customer waits for a price.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushprice.arrays import Array
from hushprice.demand import Rules, Segments, Terms
from hushprice.errors import LARGEST_VALUE, InvalidInput, finite, unknown
from hushprice.policies import Policy

_KEYS = ("low", "high", "ladder", "largest_step")


@dataclass(frozen=True, kw_only=True)
class Guardrails:
    """Limits on prices.

    Parameters
    ----------
    low, high : float, optional
        The range of prices.
    ladder : tuple of float
        The allowed prices; empty for all.
    largest_step : float, optional
        The largest change from the previous price. Not for private products.

    Examples
    --------
    >>> Guardrails(low=2, ladder=(3.0, 2.0)).config()
    {'low': 2.0, 'high': None, 'ladder': [2.0, 3.0], 'largest_step': None}
    """

    low: float | None = None
    high: float | None = None
    ladder: tuple[float, ...] = ()
    largest_step: float | None = None

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            value = getattr(self, name)
            if value is not None:
                value = finite(f"{name} of the guardrails", value, minimum=0.0, maximum=LARGEST_VALUE)
                object.__setattr__(self, name, value)
        if self.low is not None and self.high is not None and self.low > self.high:
            raise InvalidInput(f"The guardrails must have low <= high, got low {self.low:g} and high {self.high:g}.")
        checked = Rules(ladder=self.ladder, largest_step=self.largest_step)
        object.__setattr__(self, "ladder", checked.ladder)
        object.__setattr__(self, "largest_step", checked.largest_step)

    @property
    def none(self) -> bool:
        """Whether these guardrails limit nothing."""
        return self == NO_GUARDRAILS

    def config(self) -> dict[str, Any]:
        """Return the guardrails as plain data; :meth:`of` reads them back."""
        return {"low": self.low, "high": self.high, "ladder": list(self.ladder), "largest_step": self.largest_step}

    @classmethod
    def of(cls, plain: Any) -> Guardrails:
        """Make guardrails from plain data.

        Parameters
        ----------
        plain : mapping
            Their fields by name.
        """
        if not isinstance(plain, Mapping):
            raise InvalidInput("guardrails must give any of low, high, ladder and largest_step by name.")
        for key in plain:
            if key not in _KEYS:
                raise unknown("guardrail", key, _KEYS)
        ladder = plain.get("ladder")
        if ladder is not None and not isinstance(ladder, (list, tuple)):
            raise InvalidInput("ladder of the guardrails must be a list of prices.")
        return cls(
            low=plain.get("low"),
            high=plain.get("high"),
            ladder=tuple(ladder or ()),
            largest_step=plain.get("largest_step"),
        )


NO_GUARDRAILS = Guardrails()


class Limits:
    """A policy's rules, narrowed by guardrails.

    Parameters
    ----------
    policy : Policy
        The policy, whose rules and range of prices hold in any case.
    guardrails : Guardrails
        Further limits.

    Attributes
    ----------
    prices : tuple of float
        The range of prices.
    rules : Rules
        The rules in force.

    Raises
    ------
    InvalidInput
        If a segment has no price left, or if the guardrails allow what the policy does not.
    """

    def __init__(self, policy: Policy, guardrails: Guardrails) -> None:
        self.policy, self.guardrails = policy, guardrails
        lowest, highest = policy.prices
        low = lowest if guardrails.low is None else guardrails.low
        high = highest if guardrails.high is None else guardrails.high
        if not lowest <= low <= high <= highest:
            raise InvalidInput(
                f"The guardrails [{low:g}, {high:g}] must lie within the policy's prices [{lowest:g}, {highest:g}]."
            )
        if policy.private and guardrails.largest_step is not None:
            raise InvalidInput(
                "A private product cannot keep to a largest step: the last price, which tells of the customer it was "
                "quoted to, would have to leave the device. Set low and high instead."
            )
        self.prices = low, high
        self.rules = self._rules()
        self.rules.check(self.prices, policy.experiment_range())

    def _rules(self) -> Rules:
        """The rules in force; every segment's range is cut to the guardrails."""
        own, rails = self.policy.rules or Rules(), self.guardrails
        ranges = {}
        for name in own.segments:
            low, high = own.ranges.get(name, self.policy.prices)
            ranges[name] = max(low, self.prices[0]), min(high, self.prices[1])
            if ranges[name][0] > ranges[name][1]:
                raise InvalidInput(
                    f"The guardrails [{self.prices[0]:g}, {self.prices[1]:g}] leave the segment {name!r}, whose range "
                    f"is [{low:g}, {high:g}], no price."
                )
        if own.ladder and (strange := sorted(set(rails.ladder) - set(own.ladder))):
            raise InvalidInput(
                f"The ladder of the guardrails may only leave out prices of the product's own ladder, which does not "
                f"have {', '.join(f'{price:g}' for price in strange[:5])}. Choose among its own prices."
            )
        steps = [step for step in (own.largest_step, rails.largest_step) if step is not None]
        return Rules(
            ladder=rails.ladder or own.ladder,
            largest_step=min(steps, default=None),
            segments=own.segments,
            ranges=ranges,
        )

    def index(self, segment: str | None) -> int:
        """The index of a segment."""
        return self.rules.index(segment)

    def terms(self, *, cost: float | None, segment: int, last: Array) -> Terms | None:
        """The terms for one customer.

        Parameters
        ----------
        cost : float, optional
            Unit cost; the policy's if None.
        segment : int
            Index of the customer's segment.
        last : array
            Last price per segment; the largest step counts from there or, if that price is no longer allowed, from the
            nearest allowed one.

        Returns
        -------
        Terms or None
            None if nothing limits the policy's own prices.
        """
        number: Segments = np.array([segment], dtype=np.int64)
        if self.guardrails.none and self.policy.rules is None:
            return self.policy.terms(1, cost=cost)
        own = self.policy.cost if cost is None else cost
        terms = Terms.of(self.rules, self.prices, 1, cost=own, segment=number, last=last.copy())
        previous = terms.last[segment]
        if not np.isnan(previous):
            terms.last[segment] = self.nearest(float(previous), segment=segment)
        return terms

    def nearest(self, price: float, *, segment: int | None = None) -> float:
        """The allowed price nearest to this one, regardless of the largest step; None stands for all segments."""
        name = self.rules.segments[segment] if self.rules.segments and segment is not None else ""
        low, high = self.rules.ranges.get(name, self.prices)
        inside = [p for p in self.rules.ladder if low <= p <= high]
        return min(inside, key=lambda p: abs(p - price)) if inside else min(max(price, low), high)
