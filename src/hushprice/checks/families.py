"""What a demand family consists of, and which of its parts are missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hushprice.demand import Family, missing_parts
from hushprice.device.demand import FAMILIES as DEVICE_FAMILIES
from hushprice.kernels import glm

# the functions of hushprice.kernels.glm that branch on a family's code, with arguments for a call
EVERY_FAMILY: dict[str, tuple[float, ...]] = {
    "psi": (0.3,),
    "mean": (0.3,),
    "curvature": (0.3,),
    "skewness": (0.3,),
    "mean_and_information": (0.3,),
    "loss": (0.3, 1.0),
    "loglik": (1.0, 0.3, 1.0),
    "draw": (1.0, 0.5, 0.25),
    "positive": (),
    "binary": (),
    "identity": (),
    "quadratic": (),
    "canonical": (),
    "steepness": (1.0,),
    "best_price": (1.0, 0.5, 0.0, 0.5, 3.0),
    "best_end": (1.0, -0.5, 4.0, 0.5, 3.0),
}
POSITIVE_DEMAND = {"logmean": (0.3,), "log_slope": (0.3,), "log_bend": (0.3, 0.5)}


def family_gaps(family: Family) -> list[str]:
    """What a family lacks: in its class, in the compiled kernels and on devices.

    Parameters
    ----------
    family : Family
        The family to look at.

    Returns
    -------
    list of str
        One entry per missing part, empty for a complete family.

    Examples
    --------
    >>> from hushprice.demand import Logistic
    >>> family_gaps(Logistic())
    []
    """
    gaps = missing_parts(type(family))
    if not isinstance(getattr(family, "code", None), int):
        return gaps
    for name, arguments in EVERY_FAMILY.items():
        if not _known(getattr(glm, name), family.code, *arguments):
            gaps.append(f"a branch in hushprice.kernels.glm.{name}")
    if _known(glm.positive, family.code) and glm.positive(family.code):
        for name, arguments in POSITIVE_DEMAND.items():
            if not _known(getattr(glm, name), family.code, *arguments):
                gaps.append(f"a branch in hushprice.kernels.glm.{name}")
    if family.name not in DEVICE_FAMILIES:
        gaps.append("an entry in hushprice.device.demand.FAMILIES")
    return gaps


def check_family_complete(family: Family) -> None:
    """Check that a family lacks nothing.

    Parameters
    ----------
    family : Family
        The family to check.

    Raises
    ------
    AssertionError
        If parts are missing; the message lists all of them.
    """
    gaps = family_gaps(family)
    assert not gaps, f"{type(family).__name__} is incomplete. It lacks: {'; '.join(gaps)}."


def _known(kernel: Callable[..., Any], code: int, *arguments: float) -> bool:
    """Whether a kernel has a branch for the code."""
    try:
        kernel(code, *arguments)
    except ValueError as error:
        if str(error) != "unknown family":
            raise
        return False
    return True
