"""The two encodings of reports, JSON and rows of 64-bit integers, and every conversion between them.

    kind          as JSON                                        as a row
    directions    {"seed": 16 hexadecimal digits, "index": k}    the seed as a signed number, k
    grid          {"grid": [k_1, ..., k_n]}                      k_1, ..., k_n
    bit           {"bit": 0 or 1}                                0 or 1
    any other     {"kind": name, "values": [v_1, ...]}           v_1, ...

The service accepts the first two kinds (``protocol/report.schema.json``). ``hushprice.device`` uses the standard
library only and writes these two itself; tests compare both implementations report by report.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hushprice.errors import InvalidInput

if TYPE_CHECKING:
    from hushprice.privacy.mechanism import VectorMechanism

Rows = npt.NDArray[np.int64]
"""Reports, one per row."""
_SEED = re.compile("[0-9a-f]{16}")


@dataclass(frozen=True)
class Report:
    """A randomised report: a few integers, and all that leaves the device.

    Parameters
    ----------
    kind : str
        What the numbers mean: "directions", "grid", "bit", or a name of one's own.
    values : tuple of int
        Whole numbers of 64 bits.

    Examples
    --------
    >>> Report("directions", (-1, 3)).to_dict()
    {'seed': 'ffffffffffffffff', 'index': 3}
    >>> Report.from_dict({"grid": [5, -7]})
    Report(kind='grid', values=(5, -7))
    """

    kind: str
    values: tuple[int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or not isinstance(self.values, tuple) or not all(map(_whole, self.values)):
            raise InvalidInput("A report is made of whole numbers of 64 bits.")

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data for JSON. Seeds are hexadecimal text, as JSON numbers are too short."""
        if self.kind == "grid":
            return {"grid": list(self.values)}
        if self.kind == "bit":
            return {"bit": self.values[0]}
        if self.kind == "directions":
            return {"seed": f"{self.values[0] & (2**64 - 1):016x}", "index": self.values[1]}
        return {"kind": self.kind, "values": list(self.values)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Report:
        """Read a report that :meth:`to_dict` wrote.

        Parameters
        ----------
        plain : mapping
            A report as plain data.

        Raises
        ------
        InvalidInput
            If it is anything else.
        """
        try:
            keys = set(plain)
            if keys == {"bit"}:
                return cls("bit", (plain["bit"],))
            if keys == {"kind", "values"} and plain["kind"] not in ("grid", "bit", "directions"):
                return cls(plain["kind"], tuple(plain["values"]))
            if keys == {"grid"}:
                return cls("grid", tuple(plain["grid"]))
            if keys != {"seed", "index"} or not _SEED.fullmatch(plain["seed"]):
                raise ValueError
            return cls("directions", tuple(row(plain)))
        except (TypeError, ValueError, KeyError, AttributeError):
            raise InvalidInput(
                "A report must read {'seed': 16 hexadecimal digits, 'index': k}, {'grid': [...]} or {'bit': 0 or 1}."
            ) from None


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


# -- plain data, in bulk: the two kinds that the service accepts ------------------------------------------------------


def checked(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report if it has one of the two forms that the service accepts; :func:`rows` checks its numbers.

    Examples
    --------
    >>> checked({"seed": "00ff00ff00ff00ff", "index": 1})
    {'seed': '00ff00ff00ff00ff', 'index': 1}
    """
    if len(report) == 1 and "grid" in report:
        grid = report["grid"]
        if isinstance(grid, list) and all(type(k) is int for k in grid):
            return {"grid": grid}
    elif len(report) == 2 and "seed" in report and "index" in report:
        seed, index = report["seed"], report["index"]
        if isinstance(seed, str) and _SEED.fullmatch(seed) and type(index) is int:
            return {"seed": seed, "index": index}
    raise InvalidInput("A report must read {'seed': 16 hexadecimal digits, 'index': k} or {'grid': [whole numbers]}.")


def encode(report: Mapping[str, Any]) -> str:
    """Encode a checked report as JSON with sorted keys and without spaces.

    Examples
    --------
    >>> encode({"seed": "00ff00ff00ff00ff", "index": 1}), encode({"grid": [5, -7]})
    ('{"index":1,"seed":"00ff00ff00ff00ff"}', '{"grid":[5,-7]}')
    """
    if "grid" in report:
        return f'{{"grid":[{",".join(map(str, report["grid"]))}]}}'
    return f'{{"index":{report["index"]},"seed":"{report["seed"]}"}}'


def row(report: Mapping[str, Any]) -> list[int]:
    """Return a checked report as the integers that a server takes.

    Examples
    --------
    >>> row({"seed": "ffffffffffffffff", "index": 3})
    [-1, 3]
    """
    if "grid" in report:
        return list(report["grid"])
    word = int(report["seed"], 16)
    return [word - (word >> 63 << 64), report["index"]]


def rows(mechanism: VectorMechanism, reports: Sequence[Mapping[str, Any]]) -> Rows | None:
    """Return :func:`row` of many checked reports, or None if the mechanism cannot have made one of them."""
    try:
        numbers = _numbers(reports, mechanism.kind == "grid").reshape(len(reports), mechanism.width)
    except (TypeError, ValueError, KeyError, OverflowError):
        return None
    return numbers if mechanism.possible(numbers).all() else None


def _numbers(reports: Sequence[Mapping[str, Any]], grids: bool) -> Rows:
    if grids:
        return np.array([report["grid"] for report in reports], dtype=np.int64)
    words = np.frombuffer(bytes.fromhex("".join([report["seed"] for report in reports])), dtype=">i8")
    return np.column_stack([words, np.array([report["index"] for report in reports], dtype=np.int64)]).astype(np.int64)


def example(mechanism: VectorMechanism) -> dict[str, Any]:
    """Return a report that the mechanism can make from any input: all its numbers are 0."""
    return Report(mechanism.kind, (0,) * mechanism.width).to_dict()
