"""Compilation of kernels.

Kernels use strict IEEE arithmetic with NumPy's rules for division (x/0 is infinite, not an exception). Numba caches
them on disk beside the source, in the user's cache folder or in ``NUMBA_CACHE_DIR``. Without a writable folder, as in a
read-only container, each process compiles them again.
``inlined`` is for step functions called once per customer, where the call would cost more than the work.
"""

from collections.abc import Callable
from typing import Any

from numba import njit, vectorize


def _cached(make: Callable[..., Any], **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that compiles with a cache, or without one if no folder is writable."""

    def compile_(function: Callable[..., Any]) -> Any:
        try:
            return make(cache=True, **options)(function)
        except RuntimeError:  # Numba's "no locator available": no writable folder
            return make(**options)(function)

    return compile_


compiled = _cached(njit, error_model="numpy", nogil=True)
inlined = _cached(njit, error_model="numpy", nogil=True, inline="always")
ufunc = _cached(vectorize)
