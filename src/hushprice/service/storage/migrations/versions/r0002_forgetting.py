"""The index of changes covers events of the kind forget."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the index again, over one kind of event more."""
    where = sa.text("kind IN ('mode', 'guardrails', 'rollback', 'forget')")
    op.drop_index("changes", "events")
    op.create_index("changes", "events", ["product_id", "seq"], sqlite_where=where, postgresql_where=where)
