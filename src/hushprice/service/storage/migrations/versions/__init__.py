"""Revisions of the tables, each a module with ``revision``, ``down_revision`` and ``upgrade``."""
