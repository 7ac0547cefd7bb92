"""How kernels are compiled.

Strict IEEE arithmetic with NumPy's rules for division (x/0 is infinite, not an exception), cached on disk.
``inlined`` is for step functions called once a customer, where the call itself would cost more than the work.
"""

from numba import njit

compiled = njit(cache=True, error_model="numpy", nogil=True)
inlined = njit(cache=True, error_model="numpy", nogil=True, inline="always")
