"""The score of one record, with the price as it is or centred."""

from hushprice.kernels.glm import mean, utility_of
from hushprice.kernels.jit import compiled

LARGEST_RESIDUAL = 1e100  # a residual beyond it is cut before anything overflows


@compiled
def score(code, theta, z, price, y, shift, factor, g):
    """The score (y - psi'(a - b p)) (z, -f (p - c) z), c = shift and f = factor: the paper's for c = 0 and f = 1."""
    d = z.size
    a, b = utility_of(theta, z)
    residual = y - mean(code, a - b * price)
    residual = min(max(residual, -LARGEST_RESIDUAL), LARGEST_RESIDUAL) if residual == residual else 0.0
    for j in range(d):
        g[j] = residual * z[j]
        g[d + j] = -factor * (price - shift) * g[j]
