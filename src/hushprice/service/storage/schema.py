"""The tables of the newest revision, and the statements that every transaction uses.

A change here needs a module in ``migrations/versions``; a test compares the two.
"""

from __future__ import annotations

import sqlalchemy as sa

from hushprice.service.core.events import CHANGES

SCHEMA = 1  # what releases that know no revisions look for: raise it in a revision that they must not open

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
    # no foreign key: whoever writes has locked the product's row, so that it is there; to check it for each event as
    # well would cost a look-up each
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
# PostgreSQL's index of keys, and SQLite's, which is not kept up to date event by event: see key_index.py
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
    sa.Column("key", sa.String(66), nullable=False),  # ... if it has this key: a log that was cut off goes on otherwise
)
# admin's changes are few among many events: an index of their own
sa.Index(
    "changes",
    events.c.product_id,
    events.c.seq,
    sqlite_where=events.c.kind.in_(CHANGES),
    postgresql_where=events.c.kind.in_(CHANGES),
)

# What every transaction does is asked of the driver itself, which takes a tenth of the time. Each key is looked up in
# the index of keys, whatever the planner thinks of the table's size.
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
# The products locked, then the time of the one clock that all workers share; and a commit waits for the disk, whatever
# the server, the database or the role has as its default.
BEGIN_POSTGRES = (
    "WITH held AS MATERIALIZED (SELECT id FROM products WHERE id = ANY(?) ORDER BY id FOR UPDATE) "
    "SELECT count(*), CAST(extract(epoch FROM clock_timestamp()) AS double precision), "
    "CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END "
    "FROM held"
)
ADD = "INSERT INTO events (product_id, seq, at, kind, key, body) VALUES (?, ?, ?, ?, ?, ?)"
ADD_MANY = "COPY events (product_id, seq, at, kind, key, body) FROM STDIN"
# A key is there already if another process put it there, or if it was that of an event which is lost.
PLACE = "INSERT OR REPLACE INTO places (product_id, key, seq) VALUES (?, ?, ?)"
PLACED = (
    "INSERT INTO placed (product_id, upto, key) "
    "SELECT product_id, seq, key FROM events WHERE product_id = ? AND seq = ? "
    "ON CONFLICT (product_id) DO UPDATE SET upto = excluded.upto, key = excluded.key WHERE excluded.upto > placed.upto"
)
