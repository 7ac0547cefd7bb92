"""The privacy budget of one customer: :mod:`hushprice.device.ledger`, which devices use too."""

from hushprice.device.ledger import Ledger

__all__ = ["Ledger"]
