"""How kernels are compiled.

Strict IEEE arithmetic with NumPy's rules for division (x/0 is infinite, not an exception), cached on disk where there
is a place to write to (beside the source, in the user's cache folder, or in ``NUMBA_CACHE_DIR``); elsewhere, as in a
read-only container, each process compiles anew.
``inlined`` is for step functions called once a customer, where the call itself would cost more than the work.
"""

from collections.abc import Callable
from typing import Any

from numba import njit, vectorize


def _cached(make: Callable[..., Any], **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that caches if it can."""

    def compile_(function: Callable[..., Any]) -> Any:
        try:
            return make(cache=True, **options)(function)
        except RuntimeError:  # Numba's "no locator available": nowhere to write to
            return make(**options)(function)

    return compile_


compiled = _cached(njit, error_model="numpy", nogil=True)
inlined = _cached(njit, error_model="numpy", nogil=True, inline="always")
ufunc = _cached(vectorize)
