"""The seller's side: one file per learner. Nothing in this folder may import what makes a report (import-linter)."""

from hushprice.policies.private.server.base import ScheduledServer
from hushprice.policies.private.server.dithered import DitheredServer
from hushprice.policies.private.server.mixed import MixedServer
from hushprice.policies.private.server.mixed_dithered import MixedDitheredServer
from hushprice.policies.private.server.sgd import SGDServer

__all__ = ["DitheredServer", "MixedDitheredServer", "MixedServer", "SGDServer", "ScheduledServer"]
