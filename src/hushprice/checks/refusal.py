"""The one thing every check of bad input asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hushprice.errors import HushpriceError


def refused(call: Callable[..., object], *args: Any, **options: Any) -> str:
    """The text of the refusal that this call must end in."""
    try:
        call(*args, **options)
    except HushpriceError as refusal:
        text = str(refusal)
    else:
        raise AssertionError(f"bad input was accepted: {args} {options}")
    assert len(text) > 20, f"the refusal says too little: {text}"
    return text
