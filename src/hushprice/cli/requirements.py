"""Check for optional packages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hushprice.errors import InvalidInput


@contextmanager
def needing(what: str, extra: str) -> Iterator[None]:
    """Raise an error that says what to install if a package of an extra is missing.

    >>> with needing("The service", "service"):
    ...     raise ModuleNotFoundError(name="starlette")
    Traceback (most recent call last):
    hushprice.errors.InvalidInput: The service needs starlette, which is not installed: pip install 'hushprice[service]'
    """
    try:
        yield
    except ModuleNotFoundError as problem:
        if (problem.name or "").split(".")[0] == "hushprice":
            raise
        raise InvalidInput(
            f"{what} needs {problem.name}, which is not installed: pip install 'hushprice[{extra}]'"
        ) from None
