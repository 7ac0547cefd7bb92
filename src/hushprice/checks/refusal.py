"""A helper for checks of bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hushprice.errors import HushpriceError


def refused(call: Callable[..., object], *args: Any, **options: Any) -> str:
    """The message of the HushpriceError that this call must raise.

    Raises
    ------
    AssertionError
        If the call succeeds, or the message is too short to be useful.
    """
    try:
        call(*args, **options)
    except HushpriceError as refusal:
        text = str(refusal)
    else:
        raise AssertionError(f"bad input was accepted: {args} {options}")
    assert len(text) > 20, f"the refusal says too little: {text}"
    return text
