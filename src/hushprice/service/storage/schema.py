"""The tables of the newest revision, and the statements that every transaction uses.

A change of the tables needs a module in ``migrations/versions``; a test compares the two.
"""

from __future__ import annotations

import sqlalchemy as sa

from hushprice.service.core.events import CHANGES

SCHEMA = 1  # checked by releases without revisions: increase it in a revision that they must not open

tables = sa.MetaData()
schema = sa.Table("schema", tables, sa.Column("version", sa.Integer, nullable=False))
products = sa.Table(
    "products",
    tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(40), nullable=False, unique=True),
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("created", sa.Double, nullable=False),
)
events = sa.Table(
    "events",
    tables,
    # no foreign key: a writer has locked the product's row, so it exists, and a check would cost a look-up per event
    sa.Column("product_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("kind", sa.String(10), nullable=False),
    sa.Column("key", sa.String(66), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sqlite_with_rowid=False,
)
keys = sa.Table(
    "keys",
    tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(100), nullable=False),
    sa.Column("role", sa.String(10), nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False, unique=True),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("revoked", sa.Double),
)
snapshots = sa.Table(
    "snapshots",
    tables,
    sa.Column("product_id", sa.Integer, sa.ForeignKey(products.c.id), primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
# The index of keys in PostgreSQL, and in SQLite, where it lags behind the log: see key_index.py
sa.Index("places", events.c.product_id, events.c.key, unique=True).ddl_if(dialect="postgresql")
sqlite_tables = sa.MetaData()
places = sa.Table(
    "places",
    sqlite_tables,
    sa.Column("product_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("key", sa.String(66), primary_key=True),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
placed = sa.Table(
    "placed",
    sqlite_tables,
    sa.Column("product_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("upto", sa.BigInteger, nullable=False),  # the keys of all events up to this one are in places ...
    sa.Column(
        "key", sa.String(66), nullable=False
    ),  # ... if it has this key; otherwise the log was cut off and continued
)
# admins make few changes among many events, so these have an index
sa.Index(
    "changes",
    events.c.product_id,
    events.c.seq,
    sqlite_where=events.c.kind.in_(CHANGES),
    postgresql_where=events.c.kind.in_(CHANGES),
)

# The driver itself runs these statements, in a tenth of the time. They are written so that each key is looked up in the
# index of keys, regardless of the planner's estimate of the table's size.
NEXT = "SELECT seq, at, kind, key, body FROM events WHERE product_id = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
ONE = "SELECT key, at FROM events WHERE product_id = ? AND seq = ?"
KEYS = "SELECT key, seq FROM events WHERE product_id = ? AND seq > ? AND seq <= ? ORDER BY seq"
FIND_SQLITE = (
    "SELECT places.seq FROM json_each(?) AS asked CROSS JOIN places "
    "ON places.product_id = ? AND places.key = asked.value"
)
FIND_POSTGRES = (
    "SELECT found.seq FROM unnest(CAST(? AS text[])) AS asked(key), LATERAL "
    "(SELECT seq FROM events WHERE product_id = ? AND events.key = asked.key LIMIT 1) AS found"
)
READ_SQLITE = "SELECT key, body FROM events WHERE product_id = ? AND seq IN (SELECT value FROM json_each(?))"
READ_POSTGRES = "SELECT key, body FROM events WHERE product_id = ? AND seq = ANY(?)"
# Lock the products, then read the clock that all workers share. A commit waits for the disk, regardless of the default
# of the server, the database or the role.
BEGIN_POSTGRES = (
    "WITH held AS MATERIALIZED (SELECT id FROM products WHERE id = ANY(?) ORDER BY id FOR UPDATE) "
    "SELECT count(*), CAST(extract(epoch FROM clock_timestamp()) AS double precision), "
    "CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END "
    "FROM held"
)
ADD = "INSERT INTO events (product_id, seq, at, kind, key, body) VALUES (?, ?, ?, ?, ?, ?)"
ADD_MANY = "COPY events (product_id, seq, at, kind, key, body) FROM STDIN"
# The key exists already if another process inserted it, or if it belonged to an event that is lost.
PLACE = "INSERT OR REPLACE INTO places (product_id, key, seq) VALUES (?, ?, ?)"
PLACED = (
    "INSERT INTO placed (product_id, upto, key) "
    "SELECT product_id, seq, key FROM events WHERE product_id = ? AND seq = ? "
    "ON CONFLICT (product_id) DO UPDATE SET upto = excluded.upto, key = excluded.key WHERE excluded.upto > placed.upto"
)
