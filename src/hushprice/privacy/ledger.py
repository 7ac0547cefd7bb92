"""What one customer has spent over many reports: :mod:`hushprice.device.ledger`, which devices use too."""

from hushprice.device.ledger import Ledger

__all__ = ["Ledger"]
