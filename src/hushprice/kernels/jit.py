"""Compilation of kernels.

Kernels use strict IEEE arithmetic with NumPy's rules for division (x/0 is infinite, not an exception). Numba caches
them on disk beside the source, in the user's cache folder or in ``NUMBA_CACHE_DIR``. Without a writable folder, as in a
read-only container, each process compiles them again.
``inlined`` is for step functions called once per customer, where the call would cost more than the work.
``borrowed`` is for a loop over customers whose functions take tuples of many arrays: Numba counts the references to
each array at each call, which can cost as much as the work.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any

from numba import njit, vectorize
from numba.core import cgutils, types
from numba.extending import intrinsic


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


@intrinsic  # type: ignore[untyped-decorator]
def borrowed(_typing_context: Any, arguments: Any) -> Any:
    """The same arguments, with arrays that own nothing, so that no reference to them is counted.

    Only for arguments of a kernel that Python calls: its caller holds the arrays until the kernel returns.
    """

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return _without_owner(context, builder, arguments, values[0])

    return arguments(arguments), generate


def _without_owner(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        array.parent = cgutils.get_null_value(array.parent.type)
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):
        for i, part in enumerate(kind):
            inner = _without_owner(context, builder, part, builder.extract_value(value, i))
            value = builder.insert_value(value, inner, i)
    return value


def ufunc(function: Callable[..., Any]) -> Any:
    """A function of numbers as a NumPy ufunc.

    It is compiled under a name of its own. Numba's cache knows a function by its name and line, and would hand the
    ufunc's machine code, which Python cannot call, to the compiled function of the same name.
    """
    copy = FunctionType(function.__code__, function.__globals__, f"{function.__name__}_ufunc", function.__defaults__)
    copy.__module__, copy.__qualname__, copy.__doc__ = function.__module__, copy.__name__, function.__doc__
    return _cached(vectorize)(copy)
