"""Live use: offers one at a time, outcomes whenever they come, and snapshots."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array, array
from hushprice.demand import Terms, fresh
from hushprice.errors import LARGEST_VALUE, InvalidInput, SnapshotError, discreetly, finite, positive_int
from hushprice.policies import snapshot
from hushprice.policies.base import Params, Policy
from hushprice.policies.phases import Phase
from hushprice.privacy import UnsafeSeed

Seed = int | np.random.SeedSequence | None


@dataclass(frozen=True)
class Offer:
    """A price quoted to one customer. The id is all that needs to be kept until the outcome is known."""

    id: int
    price: float
    experiment: bool  # whether the price was bent to learn (drawn, deviated, optimistic), not just what looks best
    stage: int = field(repr=False, compare=False)  # the estimate the outcome is for; 0 if it is not learned from
    params: Params = field(repr=False, compare=False)  # in force at the time, but for their bounds
    z: Array | None = field(repr=False, compare=False)  # on the device's side of a private policy, nowhere else
    propensity: float = math.nan  # how likely this price was: its probability if ``discrete``, else its density
    discrete: bool = False
    public: bool = field(default=False, repr=False, compare=False)  # whether the customer agreed to send a raw record
    token: int = field(default=0, repr=False)  # random: tells offers of one pricer from those of another


class Pricer:
    """Quotes prices and learns from outcomes.

    Outcomes may come late, out of order, more than once (later copies are ignored) or never. Offers wait for
    their outcome until ``patience`` newer ones are waiting too; then the oldest is closed and an outcome for it is
    ignored.

    Offers made after the last :meth:`save` are lost in a crash, and a largest step is counted from the prices saved. A
    loaded pricer gives its offers ids from a fresh range, so that an outcome of a lost offer is refused and never taken
    for that of another customer.

    Of a private policy's customers the pricer keeps no context: the :class:`Offer` in the caller's hands is the
    customer's device, and an outcome must come with it rather than with its id alone. The generator behind its price
    experiments is not saved either, as the prices could be read back from it; a loaded pricer starts a fresh one. (An
    outcome observed after the last save can be observed again after a load, and is then reported twice.)

    >>> from hushprice.policies import ETCDoubling
    >>> pricer = ETCDoubling(family="logistic", dim=2, prices=(0, 3)).start(seed=1)
    >>> offer = pricer.offer([1.0, 0.5])
    >>> pricer.observe(offer, 1)
    True
    >>> pricer.observe(offer, 1)
    False
    """

    def __init__(
        self, policy: Policy, *, seed: Seed = None, patience: int = 100_000, unsafe_privacy_seed: Seed = None
    ) -> None:
        self.policy = policy
        self.patience = positive_int("patience", patience)
        try:
            if isinstance(seed, bool):
                raise TypeError
            self._rng = np.random.Generator(np.random.PCG64(seed))
        except (TypeError, ValueError):
            raise InvalidInput(f"seed must be a whole number of at least 0, got {seed!r}.") from None
        unsafe = None if unsafe_privacy_seed is None else UnsafeSeed(unsafe_privacy_seed)
        self._entropy = unsafe if policy.private else None
        self._fresh = policy.private and self._entropy is None  # whether the generator of prices must not be saved
        self._device, self._server = policy.device(self._entropy), policy.server()
        self._open: dict[int, Offer] = {}
        self._last = fresh(policy.rules)  # last price quoted in each segment
        self._runs = [[0, 1]]  # first and next id of each stretch between loads, the current one last

    @property
    def params(self) -> Params:
        """The public parameters in force for the next customer. Looking changes nothing: a copy is asked."""
        twin = self.policy.server()
        twin.restore(self._server.state())
        return twin.params

    @property
    def offers(self) -> int:
        """Offers made so far."""
        return sum(after - first for first, after in self._runs) - 1

    @property
    def waiting(self) -> int:
        """Offers whose outcome has not come yet."""
        return len(self._open)

    def offer(
        self, z: npt.ArrayLike, *, public: bool = False, cost: float | None = None, segment: str | None = None
    ) -> Offer:
        """The price for a customer with context z, who is ``public`` if they agreed to send a raw record.

        That choice matters to policies that leave it (Mixed). The others send what they send of everyone. ``cost`` is
        what a unit costs for this customer, the policy's unless given; ``segment`` the one whose rules apply.
        """
        if not isinstance(public, (bool, np.bool_)):
            raise InvalidInput("public must be True or False: whether this customer agreed to send a raw record.")
        context, terms = self._context(z), self._terms(cost, segment)
        params = self._server.params
        before = None if terms is None else terms.before()
        asked = (params, context, self._rng) if terms is None else (params, context, self._rng, terms)
        quote = self._device.quote(*asked)
        likely = self._device.propensity(params, context, quote.price, before)
        offer = Offer(
            id=self._runs[-1][1],
            price=float(quote.price[0]),
            experiment=quote.experiments > 0,
            stage=int(np.max(quote.stage)),
            params=params if params.bounds is None else replace(params, bounds=None),
            z=context,
            propensity=float(likely.value[0]),
            discrete=bool(likely.discrete[0]),
            public=bool(public),
            token=secrets.randbits(62),
        )
        self._server.advance(1)
        if terms is not None and not self.policy.private:
            self._last[:] = terms.last
        self._runs[-1][1] += 1
        self._open[offer.id] = self._forget(offer) if self.policy.private else offer
        if len(self._open) > self.patience:
            del self._open[next(iter(self._open))]
        return offer

    def observe(self, offer: Offer | int, y: float) -> bool:
        """What the customer bought, by offer or offer id. True the first time, False if it was known or too late.

        Not every outcome is learned from: ETC learns from its experiments only, and an episode that starts afresh not
        from the offers of the one before.
        """
        key = offer.id if isinstance(offer, Offer) else offer
        if isinstance(key, bool) or not isinstance(key, (int, np.integer)) or not self._made(int(key)):
            shown = f"offer {key}" if isinstance(key, (int, np.integer)) else "such offer"
            raise InvalidInput(f"This pricer made no {shown}, or made it after the last save before a crash.")
        outcome = self._outcome(y)
        known = self._open.get(int(key))
        if known is None:
            return False
        told = offer if isinstance(offer, Offer) and self.policy.private else known
        if isinstance(offer, Offer) and offer.token != known.token:
            raise InvalidInput(f"Offer {key} was made by another pricer.")
        if known.stage:
            if told.z is None:
                raise InvalidInput(
                    f"A private policy keeps no context: give the offer {key} itself with its outcome, not its id."
                )
            price, y_row, public = np.array([told.price]), outcome.reshape(1), np.array([told.public])
            self._server.absorb(self._device.report(told.params, told.z, price, y_row, known.stage, public=public))
        del self._open[known.id]
        return True

    def _terms(self, cost: float | None, segment: str | None) -> Terms | None:
        rules = self.policy.rules
        if cost is not None:
            check = partial(finite, "cost", cost, minimum=0.0, maximum=LARGEST_VALUE)
            cost = discreetly(check, "A unit cost must be a number of at least 0.") if self.policy.private else check()
        if rules is None:
            if segment is not None:
                raise InvalidInput("This policy has no rules and so no segments: leave out the segment.")
            return self.policy.terms(1, cost=cost)
        check_segment = partial(rules.index, segment)
        text = (
            f"The segment must be one of {', '.join(rules.segments)}." if rules.segments else "There are no segments."
        )
        known = discreetly(check_segment, text) if self.policy.private else check_segment()
        number = np.array([known], dtype=np.int64)
        return self.policy.terms(1, cost=cost, segment=number, last=self._last.copy())

    def _context(self, z: npt.ArrayLike) -> Array:
        check = partial(array, "the context z", z, shape=(self.policy.dim,), limit=LARGEST_VALUE)
        text = f"The context z must be {self.policy.dim} finite numbers below {LARGEST_VALUE:g} in size."
        context = discreetly(check, text) if self.policy.private else check()
        return context.reshape(1, -1).copy()

    def _outcome(self, y: float) -> Array:
        family = self.policy.family
        text = f"An outcome must be one number that {family.name} demand can have."
        check = partial(family.check_outcome, y)
        outcome = discreetly(check, text) if self.policy.private else check()
        if outcome.shape != ():
            raise InvalidInput(f"An outcome must be one number, got an array of shape {outcome.shape}.")
        return outcome

    def _forget(self, offer: Offer) -> Offer:
        """What is kept of a private customer's offer: its id, and that an outcome is waited for."""
        return replace(
            offer, price=self.policy.prices[0], propensity=math.nan, discrete=False, z=None, params=self._nothing()
        )

    def _nothing(self) -> Params:
        """Params of which nothing is used."""
        return Params(version=0, phase=Phase.FIXED, theta=np.zeros(2 * self.policy.dim))

    def _made(self, key: int) -> bool:
        return key != 0 and any(first <= key < after for first, after in self._runs)

    def __repr__(self) -> str:
        unsafe = "" if self._entropy is None else ", UNSAFE noise from a seed"
        return f"<Pricer {self.policy.name}: {self.offers} offers made, {self.waiting} waiting{unsafe}>"

    # -- snapshots ------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to a file; :meth:`load` goes on as if never interrupted."""
        waiting = list(self._open.values())
        state: dict[str, Any] = {
            "policy": {"name": self.policy.name, "config": self.policy.config()},
            "rng": None if self._fresh else _plain_rng(self._rng.bit_generator),
            "unsafe_privacy_rng": None if self._entropy is None else _plain_rng(self._entropy.bits),
            "runs": [list(run) for run in self._runs],
            "patience": self.patience,
            "server": self._server.state(),
            "last": self._last,
            "open": {
                "id": np.array([o.id for o in waiting], dtype=np.int64),
                "price": np.array([o.price for o in waiting], dtype=np.float64),
                "stage": np.array([o.stage for o in waiting], dtype=np.int64),
                "token": np.array([o.token for o in waiting], dtype=np.int64),
                "experiment": np.array([o.experiment for o in waiting], dtype=np.bool_),
                "z": np.array([o.z for o in waiting if o.z is not None], dtype=np.float64).reshape(
                    len(waiting), 0 if self.policy.private else self.policy.dim
                ),
            },
        }
        snapshot.write(path, state)

    @classmethod
    def load(cls, path: str | PathLike[str], *, unsafe_privacy: bool = False) -> Pricer:
        """The pricer that :meth:`save` wrote. One whose noise came from a seed must be asked for by name."""
        state = snapshot.read(path)
        if state.get("unsafe_privacy_rng") is not None and not unsafe_privacy:
            raise SnapshotError(
                f"{path} was made with an unsafe privacy seed: whoever knows it can undo the noise of its reports. "
                f"For a test, load it with unsafe_privacy=True."
            )
        try:
            return cls._from_state(state)
        except Exception as problem:  # whatever is wrong with the contents, the file is refused
            raise SnapshotError(f"{path} is not a usable pricer snapshot: {problem}") from problem

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> Pricer:
        from hushprice.policies import get

        saved = state["policy"]
        try:
            kind = get(saved["name"])
        except InvalidInput as problem:
            raise SnapshotError(
                f"{problem} If the policy is your own, import the file that registers it first."
            ) from None
        noise = state["unsafe_privacy_rng"]
        pricer = cls(
            kind.from_config(saved["config"]),
            patience=state["patience"],
            unsafe_privacy_seed=None if noise is None else 0,
        )
        if pricer._entropy is not None:
            pricer._entropy.bits.state = _rng_state(noise)  # type: ignore[assignment]
        pricer._server.restore(state["server"])
        if pricer._fresh != (state["rng"] is None):
            raise SnapshotError("Its generator of price experiments is missing, or should be.")
        if state["rng"] is not None:
            pricer._rng.bit_generator.state = _rng_state(state["rng"])
        pricer._runs = [
            [positive_int("an offer id", i, minimum=0, maximum=2**63) for i in run] for run in state["runs"]
        ]
        if any(len(run) != 2 or run[0] > run[1] for run in pricer._runs):
            raise SnapshotError("Its offer ids make no sense.")
        pricer._reopen(state["open"])
        if "last" in state:  # files of before there were rules have none
            pricer._go_on(state["last"])
        fresh = (secrets.randbits(30) + 1) << 32
        pricer._runs.append([fresh, fresh])
        return pricer

    def _go_on(self, last: Any) -> None:
        """Take over the last price of each segment."""
        rules, n = self.policy.rules, len(self._last)
        known = isinstance(last, np.ndarray) and last.shape == self._last.shape and last.dtype == np.float64
        terms = Terms.of(rules, self.policy.prices, n, cost=0.0, segment=np.arange(n))
        if not known or not (np.isnan(last) | terms.allows(last)).all():
            raise SnapshotError("Its last prices make no sense.")
        self._last[:] = last

    def _reopen(self, waiting: dict[str, Any]) -> None:
        """Take over the offers that wait for their outcome; their params no longer matter."""
        columns = tuple(waiting[key] for key in ("id", "price", "stage", "experiment", "token"))
        ids, prices, stages, experiments, tokens = columns
        low, high = self.policy.prices
        n = len(ids)
        private = self.policy.private
        z = array("open offers", waiting["z"], shape=(n, 0 if private else self.policy.dim))
        kinds = tuple(column.dtype.kind for column in columns)
        usable = kinds == ("i", "f", "i", "b", "i") and all(len(c) == n and c.ndim == 1 for c in columns)
        if not usable or n > self.patience or len(np.unique(ids)) < n or (n and stages.min() < 0):
            raise SnapshotError("Its open offers make no sense.")
        if not all(map(self._made, ids.tolist())) or not ((prices >= low) & (prices <= high)).all():
            raise SnapshotError("It waits for offers that were never made.")
        then = self._nothing()
        for i in range(n):
            key, stage = int(ids[i]), int(stages[i])
            row = None if private else z[i : i + 1]
            self._open[key] = Offer(key, float(prices[i]), bool(experiments[i]), stage, then, row, token=int(tokens[i]))


def _plain_rng(bits: np.random.BitGenerator) -> dict[str, Any]:
    state: Any = bits.state
    return {
        "state": str(state["state"]["state"]),
        "inc": str(state["state"]["inc"]),
        "has_uint32": int(state["has_uint32"]),
        "uinteger": int(state["uinteger"]),
    }


def _rng_state(plain: dict[str, Any]) -> dict[str, Any]:
    return {
        "bit_generator": "PCG64",
        "state": {"state": int(plain["state"]), "inc": int(plain["inc"])},
        "has_uint32": plain["has_uint32"],
        "uinteger": plain["uinteger"],
    }
