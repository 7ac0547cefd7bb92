"""What every mechanism offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array, array
from hushprice.errors import LARGEST_VALUE, InvalidInput, discreetly, finite, positive_int
from hushprice.kernels import report as device_kernel
from hushprice.kernels import sgd as server_kernel
from hushprice.kernels.state import ReportSpec
from hushprice.privacy.entropy import Entropy, Words, as_entropy
from hushprice.privacy.guarantee import Guarantee, Loss, as_epsilon
from hushprice.privacy.wire import Report, Rows

LARGEST_PRIVATE_DIM = 2000
_CHUNK = 1 << 16  # random words drawn at once


class Mechanism(ABC):
    """Turns a customer's data into a report that says little about it, and reports into unbiased values.

    Everything is derived from the guarantee and the bound ``clip``; there is no noise level to pass in.
    """

    name: ClassVar[str]
    kind: ClassVar[str]
    epsilon: float
    dim: int

    @property
    def guarantee(self) -> Guarantee:
        """What one report gives away, exactly as it is sent: epsilon, unless a mechanism says otherwise."""
        return Guarantee(self.epsilon)

    @property
    def loss(self) -> Loss:
        """The same in a form that adds up over reports."""
        return Loss(epsilon=self.epsilon)

    @property
    @abstractmethod
    def words(self) -> int:
        """Random 64-bit words that one report takes."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Whole numbers in a report."""

    @abstractmethod
    def squared_error(self, norm: float) -> float:
        """E |decode(report) - g|^2 for a g of this norm (after clipping), exactly."""

    @property
    @abstractmethod
    def worst_squared_error(self) -> float:
        """The largest :meth:`squared_error` over all g."""

    def clipped(self, g: Array) -> Array:
        """What is reported about: the input, cut to what the mechanism hides."""
        return g

    @abstractmethod
    def inputs(self, g: Any, *, many: bool) -> Array:
        """Inputs as rows of floats, refused if they are not what the mechanism takes. Texts name no value."""

    @abstractmethod
    def report_rows(self, g: Array, words: Words) -> Rows:
        """Reports of the rows of g from the rows of ``words``: a function, without randomness of its own."""

    @abstractmethod
    def decode_rows(self, rows: Rows) -> Array:
        """The values of reports that :meth:`check_rows` let pass."""

    @abstractmethod
    def possible(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Which rows are reports that this mechanism can send."""

    @abstractmethod
    def evidence(self, rows: Rows, first: Array, second: Array) -> Array:
        """A score, large for reports likelier from the first input than from the second: the worst known event."""

    @abstractmethod
    def extremes(self) -> list[tuple[str, Array, Array]]:
        """Pairs of inputs that are hardest to hide from each other, with a word for each pair."""

    def privatize(self, g: Any, rng: Entropy | None = None) -> Report:
        """The report of one input. The randomness is the operating system's; see ``UnsafeSeed`` for tests."""
        rows = self._reports(self.inputs(g, many=False), as_entropy(rng))
        return Report(self.kind, tuple(rows[0].tolist()))

    def privatize_many(self, g: Any, rng: Entropy | None = None) -> Rows:
        """The reports of many inputs, one a row."""
        return self._reports(self.inputs(g, many=True), as_entropy(rng))

    def _reports(self, g: Array, entropy: Entropy) -> Rows:
        rows = np.empty((len(g), self.width), dtype=np.int64)
        size = max(1, _CHUNK // self.words)
        for start in range(0, len(g), size):
            part = slice(start, min(len(g), start + size))
            words = entropy.words((part.stop - start) * self.words).reshape(-1, self.words)
            rows[part] = self.report_rows(g[part], words)
        return rows

    def decode(self, report: Report) -> Array:
        """The value a report stands for: over the noise its mean is the (clipped) input."""
        value: Array = self.decode_rows(self.rows([report]))[0]
        return value

    def reports(self, rows: Rows) -> list[Report]:
        """Reports one by one, to send them (``to_dict``)."""
        return [Report(self.kind, tuple(row)) for row in self.check_rows(rows).tolist()]

    def rows(self, reports: Iterable[Report]) -> Rows:
        """Reports that were received (``Report.from_dict``) as rows, which a server absorbs."""
        values = []
        for report in reports:
            if not isinstance(report, Report):
                raise InvalidInput(f"A Report is needed, got {type(report).__name__}: read JSON with Report.from_dict.")
            if report.kind != self.kind or len(report.values) != self.width:
                raise InvalidInput(
                    f"{self.name} reads reports of kind {self.kind!r} with {self.width} numbers, not of kind "
                    f"{report.kind!r} with {len(report.values)}."
                )
            values.append(report.values)
        return self.check_rows(np.array(values, dtype=np.int64).reshape(-1, self.width))

    def decode_many(self, rows: Any) -> Array:
        """The values of many reports, one a row."""
        return self.decode_rows(self.check_rows(rows))

    def check_rows(self, rows: Any) -> Rows:
        """Rows that can be reports of this mechanism; one that cannot is refused."""
        try:
            checked = np.ascontiguousarray(rows)
        except (TypeError, ValueError):
            checked = np.empty(0)
        if checked.dtype != np.int64 or checked.ndim != 2 or checked.shape[1] != self.width:
            raise InvalidInput(
                f"Reports of {self.name} must be rows of {self.width} 64-bit whole numbers, got {checked.dtype} of "
                f"shape {checked.shape}."
            )
        impossible = np.count_nonzero(~self.possible(checked))
        if impossible:
            raise InvalidInput(f"{impossible} of {len(checked)} reports cannot come from {self.name} as set up here.")
        return checked

    def config(self) -> dict[str, Any]:
        """The parameters as plain data."""
        return {"name": self.name} | {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class VectorMechanism(Mechanism):
    """A mechanism for vectors g of length ``dim``, clipped to the ball of radius ``clip``."""

    epsilon: float
    clip: float
    dim: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", as_epsilon(self.epsilon))
        clip = finite("clip", self.clip, minimum=1e-100, maximum=LARGEST_VALUE)
        object.__setattr__(self, "clip", clip)
        object.__setattr__(self, "dim", positive_int("dim", self.dim, maximum=LARGEST_PRIVATE_DIM))

    @property
    @abstractmethod
    def spec(self) -> ReportSpec:
        """What the compiled loops need to make a report and to read one."""

    @property
    def scale(self) -> float:
        """The length of a decoded direction, or the step of the grid."""
        return self.spec.scale

    @property
    def code(self) -> int:
        """The kind of report, for compiled loops."""
        return self.spec.kind

    def inputs(self, g: Any, *, many: bool) -> Array:
        wanted = f"rows of {self.dim} finite numbers" if many else f"{self.dim} finite numbers"
        shape = (None, self.dim) if many else (self.dim,)
        rows = discreetly(lambda: array("g", g, shape=shape), f"{self.name} takes {wanted}.")
        return rows.reshape(-1, self.dim).copy()

    def report_rows(self, g: Array, words: Words) -> Rows:
        rows = np.zeros((len(g), self.width), dtype=np.int64)
        device_kernel.privatize_rows(self.spec, g, words, rows)
        return rows

    def decode_rows(self, rows: Rows) -> Array:
        values = np.empty((len(rows), self.dim))
        server_kernel.decode_rows(self.code, self.scale, rows, values)
        return values

    def clipped(self, g: Array) -> Array:
        """g, or where it is longer than ``clip`` the point of the ball in its direction."""
        largest = np.maximum(np.abs(g).max(axis=-1, keepdims=True), 1e-300)
        root = np.linalg.norm(g / largest, axis=-1, keepdims=True)
        clipped: Array = np.where(largest * root > self.clip, (g / largest) * (self.clip / np.maximum(root, 0.5)), g)
        return clipped

    def extremes(self) -> list[tuple[str, Array, Array]]:
        axis = np.zeros(self.dim)
        axis[0] = self.clip
        slanted = np.full(self.dim, self.clip / np.sqrt(self.dim)) * np.where(np.arange(self.dim) % 2, -1.0, 1.0)
        return [
            ("opposite ends of the ball", axis, -axis),
            ("opposite ends, slanted", slanted, -slanted),
            ("nothing against an end", np.zeros(self.dim), axis),
            ("far outside the ball", 50.0 * slanted, -50.0 * slanted),
            ("well inside the ball", 0.3 * slanted, -0.3 * slanted),
        ]
