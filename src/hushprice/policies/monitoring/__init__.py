"""Watching demand while sales come in: whether it has changed, and whether it follows the model."""

from hushprice.policies.monitoring.findings import Change, Misfit

__all__ = ["Change", "Misfit"]
