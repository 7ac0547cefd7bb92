"""The tables of release 0.1.0.

Every later module is a difference to these: a revision that was released is never edited.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    sqlite = op.get_bind().dialect.name == "sqlite"
    version = op.create_table("schema", sa.Column("version", sa.Integer, nullable=False))
    op.bulk_insert(version, [{"version": 1}])
    op.create_table(
        "products",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(40), nullable=False, unique=True),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
    )
    op.create_table(
        "keys",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("role", sa.String(10), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False, unique=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("revoked", sa.Double),
    )
    _create_events(sqlite)
    op.create_table(
        "snapshots",
        sa.Column("product_id", sa.Integer, sa.ForeignKey("products.id"), primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    if sqlite:
        _create_key_index()


def _create_events(sqlite: bool) -> None:
    op.create_table(
        "events",
        sa.Column("product_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("key", sa.String(66), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    where = sa.text("kind IN ('mode', 'guardrails', 'rollback')")
    op.create_index("changes", "events", ["product_id", "seq"], sqlite_where=where, postgresql_where=where)
    if not sqlite:
        op.create_index("places", "events", ["product_id", "key"], unique=True)


def _create_key_index() -> None:
    """SQLite's own index of keys: see key_index.py."""
    op.create_table(
        "places",
        sa.Column("product_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("key", sa.String(66), primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "placed",
        sa.Column("product_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("upto", sa.BigInteger, nullable=False),
        sa.Column("key", sa.String(66), nullable=False),
    )
