"""Compiled numerics: short Numba functions over numbers and arrays, nothing else.

Rules of this layer:

* A demand family is an integer code (:mod:`~hushprice.kernels.glm` has them); no function is ever passed to a
  kernel, so every kernel is compiled once and cached on disk.
* Strict IEEE arithmetic (no ``fastmath``) and no BLAS or LAPACK: a kernel gives the same bits whether it is
  called for one customer or for a block, and for any number of threads or worker processes.
* The same scalar step functions serve the simulation and live use.
"""
