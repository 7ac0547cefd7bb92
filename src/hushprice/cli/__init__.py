"""The command line."""

from hushprice.cli.app import app, main

__all__ = ["app", "main"]
