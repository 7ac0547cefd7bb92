"""Live use: one offer at a time, outcomes in any order, snapshots."""

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
from hushprice.policies.base import Policy
from hushprice.policies.exchange import Params, Records
from hushprice.policies.monitoring.findings import Change, Misfit
from hushprice.policies.monitoring.monitor import Monitor
from hushprice.policies.phases import Phase
from hushprice.privacy import UnsafeSeed

Seed = int | np.random.SeedSequence | None


@dataclass(frozen=True)
class Offer:
    """A price quoted to one customer. Without privacy, the id is enough to report the outcome.

    Parameters
    ----------
    id : int
        Number of the offer.
    price : float
        The price.
    experiment : bool
        Whether the price was chosen in order to learn (drawn, deviated, optimistic).
    stage : int
        The estimate that the outcome is for; 0 if the policy does not learn from it.
    params : Params
        The params at the time of the offer, without their matrices.
    z : ndarray of shape (1, d) or None
        The context. Under a private policy it exists only in the caller's offer, which stands for the device.
    propensity : float
        Probability of the price if ``discrete``, else its density; NaN if unknown.
    discrete : bool
        Whether the price was one of several.
    public : bool
        Whether the customer agreed to send a raw record.
    token : int
        Random number that distinguishes offers of different pricers.
    terms : Terms or None
        The customer's terms, under a private policy; like the context, only in the caller's offer.
    """

    id: int
    price: float
    experiment: bool
    stage: int = field(repr=False, compare=False)
    params: Params = field(repr=False, compare=False)
    z: Array | None = field(repr=False, compare=False)
    propensity: float = math.nan
    discrete: bool = False
    public: bool = field(default=False, repr=False, compare=False)
    token: int = field(default=0, repr=False)
    terms: Terms | None = field(default=None, repr=False, compare=False)


class Pricer:
    """Quotes prices and learns from outcomes.

    Parameters
    ----------
    policy : Policy
        The policy.
    seed : int or SeedSequence, optional
        Seed of the price experiments. Default: fresh entropy.
    patience : int
        How many offers may wait for their outcome before the oldest is closed.
    unsafe_privacy_seed : int or SeedSequence, optional
        For tests: replaces the operating system's entropy in private reports, which then protect nobody.

    Notes
    -----
    Outcomes may come late, out of order, more than once (later copies are ignored) or never. An outcome of a closed
    offer is ignored.

    A crash loses the offers made after the last :meth:`save`, and a largest step is counted from the saved prices. A
    loaded pricer numbers its offers from a fresh range, so that it refuses the outcome of a lost offer instead of
    assigning it to another customer.

    A pricer with a private policy stores no context: the caller's :class:`Offer` stands for the customer's device, and
    :meth:`observe` needs this offer, not only its id. :meth:`save` leaves out the generator of the price experiments,
    because the prices could be computed from it; a loaded pricer starts a fresh one. (An outcome observed after the
    last save can be observed again after a load, and is then reported twice.)

    Examples
    --------
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
        self._monitor = Monitor.beside(policy, self._server)
        self._open: dict[int, Offer] = {}
        self._last = fresh(policy.rules)  # last price quoted in each segment
        self._runs = [[0, 1]]  # first and next id of each stretch between loads, the current one last

    @property
    def params(self) -> Params:
        """The params for the next customer. They come from a copy of the server, whose state does not change."""
        copy = self.policy.server()
        copy.restore(self._server.state())
        return copy.params

    @property
    def offers(self) -> int:
        """Number of offers made."""
        return sum(after - first for first, after in self._runs) - 1

    @property
    def waiting(self) -> int:
        """Number of offers without an outcome."""
        return len(self._open)

    @property
    def change(self) -> Change | None:
        """The last change of demand that was found; None if there is none, or the policy is private.

        Policies without a memory of their own do not act on it, unless they are :class:`Restarting`.
        """
        return self._server.change if self._monitor is None else self._monitor.change

    @property
    def misfits(self) -> tuple[Misfit, ...]:
        """Where demand does not follow the model, in words by ``str``; empty if the policy is private.

        While the model is right, there is on average at most one false alarm per million outcomes, however often one
        looks.
        """
        return self._server.misfits if self._monitor is None else self._monitor.misfits

    def forget(self, half_life: float) -> None:
        """Let old outcomes count less from now on.

        Parameters
        ----------
        half_life : float
            Age, in outcomes, at which an outcome counts half. One of twice that age counts a quarter, and so on.

        Raises
        ------
        InvalidInput
            If the half-life is not above 0, or the policy has no outcomes that it could forget.
        """
        self._server.forget(half_life)
        if self._monitor is not None:
            self._monitor.forget(half_life)

    def offer(
        self, z: npt.ArrayLike, *, public: bool = False, cost: float | None = None, segment: str | None = None
    ) -> Offer:
        """Quote a price to one customer.

        Parameters
        ----------
        z : array_like of shape (d,)
            The context.
        public : bool
            Whether the customer agreed to send a raw record. It matters only in policies with ``raw_by_choice``.
        cost : float, optional
            Unit cost of this customer. Default: the policy's.
        segment : str, optional
            The customer's segment, if the rules have segments.

        Raises
        ------
        InvalidInput
            If an argument is malformed. Under a private policy the message does not repeat the value.
        """
        if not isinstance(public, (bool, np.bool_)):
            raise InvalidInput("public must be True or False: whether this customer agreed to send a raw record.")
        context, terms = self._context(z), self._terms(cost, segment)
        params = self._server.params
        before = None if terms is None else terms.before()
        arguments = (params, context, self._rng) if terms is None else (params, context, self._rng, terms)
        quote = self._device.quote(*arguments)
        propensity = self._device.propensity(params, context, quote.price, before)
        offer = Offer(
            id=self._runs[-1][1],
            price=float(quote.price[0]),
            experiment=quote.experiments > 0,
            stage=int(np.max(quote.stage)),
            params=params.small,
            z=context,
            propensity=float(propensity.value[0]),
            discrete=bool(propensity.discrete[0]),
            public=bool(public),
            token=secrets.randbits(62),
            terms=before if self.policy.private else None,
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
        """Report the outcome of an offer.

        Policies do not learn from every outcome: ETC learns from its experiments only, and a policy that restarts
        ignores outcomes of earlier episodes.

        Parameters
        ----------
        offer : Offer or int
            The offer, or its id. A private policy needs the offer.
        y : float
            What the customer bought.

        Returns
        -------
        bool
            True the first time; False if the outcome was reported before or the offer is closed.

        Raises
        ------
        InvalidInput
            If this pricer did not make the offer, or ``y`` is not a possible outcome.
        """
        key = offer.id if isinstance(offer, Offer) else offer
        if isinstance(key, bool) or not isinstance(key, (int, np.integer)) or not self._made(int(key)):
            name = f"offer {key}" if isinstance(key, (int, np.integer)) else "such offer"
            raise InvalidInput(f"This pricer made no {name}, or made it after the last save before a crash.")
        outcome = self._outcome(y)
        stored = self._open.get(int(key))
        if stored is None:
            return False
        full = offer if isinstance(offer, Offer) and self.policy.private else stored
        if isinstance(offer, Offer) and offer.token != stored.token:
            raise InvalidInput(f"Offer {key} was made by another pricer.")
        if stored.stage:
            if full.z is None:
                raise InvalidInput(
                    f"A private policy keeps no context: give the offer {key} itself with its outcome, not its id."
                )
            price, y_row, public = np.array([full.price]), outcome.reshape(1), np.array([full.public])
            report = self._device.report(
                full.params, full.z, price, y_row, stored.stage, public=public, terms=full.terms
            )
            self._server.absorb(report)
        if self._monitor is not None and stored.z is not None:
            self._monitor.absorb(Records(stored.z, np.array([stored.price]), outcome.reshape(1)))
        del self._open[stored.id]
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
        index = discreetly(check_segment, text) if self.policy.private else check_segment()
        number = np.array([index], dtype=np.int64)
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
        """A private customer's offer without price, propensity, context and params."""
        return replace(
            offer, price=self.policy.prices[0], propensity=math.nan, discrete=False, z=None, params=self._nothing(),
            terms=None,
        )  # fmt: skip

    def _nothing(self) -> Params:
        """Placeholder params."""
        return Params(version=0, phase=Phase.FIXED, theta=np.zeros(2 * self.policy.dim))

    def _made(self, key: int) -> bool:
        return key != 0 and any(first <= key < after for first, after in self._runs)

    def __repr__(self) -> str:
        unsafe = "" if self._entropy is None else ", UNSAFE noise from a seed"
        return f"<Pricer {self.policy.name}: {self.offers} offers made, {self.waiting} waiting{unsafe}>"

    # -- snapshots ------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the whole state to a file, from which :meth:`load` continues exactly.

        Parameters
        ----------
        path : path-like
            The file, which is replaced if it exists.

        Raises
        ------
        SnapshotError
            If the file cannot be written.
        """
        waiting = list(self._open.values())
        state: dict[str, Any] = {
            "policy": {"name": self.policy.name, "config": self.policy.config()},
            "rng": None if self._fresh else _plain_rng(self._rng.bit_generator),
            "unsafe_privacy_rng": None if self._entropy is None else _plain_rng(self._entropy.bits),
            "runs": [list(run) for run in self._runs],
            "patience": self.patience,
            "server": self._server.state(),
            "monitor": None if self._monitor is None else self._monitor.state(),
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
        """The pricer that :meth:`save` wrote.

        Parameters
        ----------
        path : path-like
            The file.
        unsafe_privacy : bool
            Whether to accept a pricer whose private noise came from a seed, for tests.

        Raises
        ------
        SnapshotError
            If the file is missing, damaged or no pricer, or its noise came from a seed and ``unsafe_privacy`` is False.
        """
        state = snapshot.read(path)
        if state.get("unsafe_privacy_rng") is not None and not unsafe_privacy:
            raise SnapshotError(
                f"{path} was made with an unsafe privacy seed: whoever knows it can undo the noise of its reports. "
                f"For a test, load it with unsafe_privacy=True."
            )
        try:
            return cls._from_state(state)
        except Exception as problem:  # any fault of the contents
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
        if pricer._monitor is not None and state.get("monitor") is not None:
            pricer._monitor.restore(state["monitor"])
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
        if "last" in state:  # files written before rules existed have none
            pricer._restore_last(state["last"])
        fresh = (secrets.randbits(30) + 1) << 32
        pricer._runs.append([fresh, fresh])
        return pricer

    def _restore_last(self, last: Any) -> None:
        """Restore the last price of each segment."""
        rules, n = self.policy.rules, len(self._last)
        usable = isinstance(last, np.ndarray) and last.shape == self._last.shape and last.dtype == np.float64
        terms = Terms.of(rules, self.policy.prices, n, cost=0.0, segment=np.arange(n))
        if not usable or not (np.isnan(last) | terms.allows(last)).all():
            raise SnapshotError("Its last prices make no sense.")
        self._last[:] = last

    def _reopen(self, waiting: dict[str, Any]) -> None:
        """Restore the open offers; their params are placeholders."""
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
