"""The interface of all mechanisms."""

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
_WORDS_PER_CHUNK = 1 << 16


class Mechanism(ABC):
    """Randomises a customer's data into a report, and decodes reports into unbiased estimates of the data.

    The noise level is derived from the guarantee and the bound ``clip``; it cannot be passed in.

    Attributes
    ----------
    name : str
        Name of the mechanism in the registry.
    kind : str
        Kind of its reports (see :mod:`hushprice.privacy.wire`).
    epsilon : float
        Privacy parameter of one report.
    dim : int
        Length of the input.
    """

    name: ClassVar[str]
    kind: ClassVar[str]
    epsilon: float
    dim: int

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of one report as it is sent. Default: ``epsilon``, with delta = 0."""
        return Guarantee(self.epsilon)

    @property
    def loss(self) -> Loss:
        """The privacy loss of one report, in a form that adds up over reports."""
        return Loss(epsilon=self.epsilon)

    @property
    @abstractmethod
    def words(self) -> int:
        """Number of random 64-bit words per report."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of integers per report."""

    @abstractmethod
    def squared_error(self, norm: float) -> float:
        """Return E |decode(report) - g|^2 exactly, for a g of this norm after clipping.

        Parameters
        ----------
        norm : float
            Norm of the input after clipping.
        """

    @property
    @abstractmethod
    def worst_squared_error(self) -> float:
        """The largest :meth:`squared_error` over all g."""

    def clipped(self, g: Array) -> Array:
        """Return the input after clipping, which is what the report estimates.

        Parameters
        ----------
        g : ndarray
            Inputs, one per row.
        """
        return g

    @abstractmethod
    def inputs(self, g: Any, *, many: bool) -> Array:
        """Return inputs as rows of floats, or raise :class:`InvalidInput` without repeating any value.

        Parameters
        ----------
        g : array_like
            One input, or several.
        many : bool
            Whether there are several, one per row.

        Returns
        -------
        ndarray
            One input per row.
        """

    @abstractmethod
    def report_rows(self, g: Array, words: Words) -> Rows:
        """Return one report per row of g, computed from the same row of ``words``. Deterministic.

        Parameters
        ----------
        g : ndarray
            Inputs, one per row.
        words : ndarray of uint64
            Random words, one row per input.

        Returns
        -------
        ndarray
            One report per row.
        """

    @abstractmethod
    def decode_rows(self, rows: Rows) -> Array:
        """Decode reports that :meth:`check_rows` accepted.

        Parameters
        ----------
        rows : ndarray
            Reports, one per row.

        Returns
        -------
        ndarray
            Unbiased estimates of the clipped inputs, one per row.
        """

    @abstractmethod
    def possible(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return which rows are reports that this mechanism can send.

        Parameters
        ----------
        rows : ndarray
            Reports, one per row.

        Returns
        -------
        ndarray of bool
            One value per row.
        """

    @abstractmethod
    def evidence(self, rows: Rows, first: Array, second: Array) -> Array:
        """Return a score per report, large if it is likelier from the first input than from the second.

        The upper tail of the score is the worst known event of the audit.

        Parameters
        ----------
        rows : Rows
            Reports, one per row.
        first, second : Array
            The two inputs.
        """

    @abstractmethod
    def extremes(self) -> list[tuple[str, Array, Array]]:
        """Return (description, first, second) for the pairs of inputs that are hardest to hide from each other."""

    def privatize(self, g: Any, rng: Entropy | None = None) -> Report:
        """Randomise one input.

        Parameters
        ----------
        g : array_like
            The input.
        rng : Entropy, optional
            Source of randomness. Default: the operating system. See :class:`UnsafeSeed` for tests.

        Returns
        -------
        Report
        """
        rows = self._reports(self.inputs(g, many=False), as_entropy(rng))
        return Report(self.kind, tuple(rows[0].tolist()))

    def privatize_many(self, g: Any, rng: Entropy | None = None) -> Rows:
        """Randomise many inputs, one per row; return one report per row.

        Parameters
        ----------
        g : array_like
            Inputs, one per row.
        rng : Entropy, optional
            Source of the noise. Default: the operating system.

        Returns
        -------
        ndarray
            One report per row.
        """
        return self._reports(self.inputs(g, many=True), as_entropy(rng))

    def _reports(self, g: Array, entropy: Entropy) -> Rows:
        rows = np.empty((len(g), self.width), dtype=np.int64)
        size = max(1, _WORDS_PER_CHUNK // self.words)
        for start in range(0, len(g), size):
            part = slice(start, min(len(g), start + size))
            words = entropy.words((part.stop - start) * self.words).reshape(-1, self.words)
            rows[part] = self.report_rows(g[part], words)
        return rows

    def decode(self, report: Report) -> Array:
        """Return an unbiased estimate of the (clipped) input from one report.

        Parameters
        ----------
        report : Report
            A report of this mechanism.
        """
        value: Array = self.decode_rows(self.rows([report]))[0]
        return value

    def reports(self, rows: Rows) -> list[Report]:
        """Convert rows to :class:`Report` objects, whose ``to_dict`` is sent.

        Parameters
        ----------
        rows : ndarray
            Reports, one per row.
        """
        return [Report(self.kind, tuple(row)) for row in self.check_rows(rows).tolist()]

    def rows(self, reports: Iterable[Report]) -> Rows:
        """Convert received reports (``Report.from_dict``) to rows, which a server absorbs.

        Parameters
        ----------
        reports : iterable of Report
            Reports of this mechanism.

        Returns
        -------
        ndarray
            One report per row.

        Raises
        ------
        InvalidInput
            If this mechanism cannot have made one of them.
        """
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
        """Decode many reports, one per row.

        Parameters
        ----------
        rows : array_like
            Reports, one per row.

        Returns
        -------
        ndarray
            Unbiased estimates of the clipped inputs, one per row.
        """
        return self.decode_rows(self.check_rows(rows))

    def check_rows(self, rows: Any) -> Rows:
        """Return rows if this mechanism can have made all of them, else raise :class:`InvalidInput`.

        Parameters
        ----------
        rows : array_like
            Reports, one per row.
        """
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
        """Return the name and the parameters as plain data."""
        return {"name": self.name} | {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class VectorMechanism(Mechanism):
    """A mechanism for vectors g.

    Parameters
    ----------
    epsilon : float
        Privacy parameter of one report.
    clip : float
        Radius of the ball that g is clipped to.
    dim : int
        Length of g.
    """

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
        """The parameters that compiled loops need to make and to decode a report."""

    @property
    def scale(self) -> float:
        """The length of a decoded direction, or the grid step."""
        return self.spec.scale

    @property
    def noise_sd(self) -> float:
        """Standard deviation of the Gaussian noise added to each coordinate; 0 if none is added."""
        return 0.0

    @property
    def code(self) -> int:
        """The kind of report as a code for compiled loops."""
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
        """Return g, scaled down to length ``clip`` where it is longer."""
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
