"""The former name of :mod:`hushprice.fitting`, for programs that import it."""

from hushprice.fitting import *  # noqa: F403 - all that it exports
from hushprice.fitting import __all__ as __all__
