"""The pricing service: a log of events for each product, and what was learned as a function of the log.

Needs the extra: ``pip install 'hushprice[service]'``.
"""

from hushprice.service.core.events import Event, Mode
from hushprice.service.core.offers import OfferRequest
from hushprice.service.definition import Definition, Feature, read_products
from hushprice.service.errors import Conflict, DamagedLog, Failed, NotFound, Unavailable
from hushprice.service.guardrails import Guardrails
from hushprice.service.storage.store import Store
from hushprice.service.writer.messages import Accepted, OfferAnswer, OutcomeItem, ReportItem, View
from hushprice.service.writer.service import Service

__all__ = [
    "Accepted",
    "Conflict",
    "DamagedLog",
    "Definition",
    "Event",
    "Failed",
    "Feature",
    "Guardrails",
    "Mode",
    "NotFound",
    "OfferAnswer",
    "OfferRequest",
    "OutcomeItem",
    "ReportItem",
    "Service",
    "Store",
    "Unavailable",
    "View",
    "read_products",
]
