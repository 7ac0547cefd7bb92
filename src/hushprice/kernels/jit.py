"""Compilation of kernels.

Kernels use strict IEEE arithmetic with NumPy's rules for division (x/0 is infinite, not an exception). Numba caches
them on disk beside the source, in the user's cache folder or in ``NUMBA_CACHE_DIR``. Without a writable folder, as in a
read-only container, each process compiles them again.
``inlined`` is for step functions called once per customer, where the call would cost more than the work.
"""

from collections.abc import Callable
from types import FunctionType
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


def ufunc(function: Callable[..., Any]) -> Any:
    """A function of numbers as a NumPy ufunc.

    It is compiled under a name of its own. Numba's cache knows a function by its name and line, and would hand the
    ufunc's machine code, which Python cannot call, to the compiled function of the same name.
    """
    copy = FunctionType(function.__code__, function.__globals__, f"{function.__name__}_ufunc", function.__defaults__)
    copy.__module__, copy.__qualname__, copy.__doc__ = function.__module__, copy.__name__, function.__doc__
    return _cached(vectorize)(copy)
