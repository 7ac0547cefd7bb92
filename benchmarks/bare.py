"""The yardstick of the service: FastAPI endpoints that check a body and insert it, one transaction a request.

``python -m benchmarks.bare DATABASE PORT``: the same database, the same durability, and nothing else: no keys, no
limits, no learning, no idempotence.
"""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy import Column, Float, Integer, MetaData, String, Table, create_engine, event, insert

METADATA = MetaData()
BODIES = Table(
    "bare",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String, nullable=False),
    Column("price", Float),
    Column("body", String, nullable=False),
)

KEYED = Table(
    "keyed",
    METADATA,
    Column("id", String, primary_key=True),
    Column("body", String, nullable=False),
)


class Report(BaseModel):
    """A private report."""

    id: str
    version: int
    report: dict[str, str | int] | None


class Batch(BaseModel):
    """Several of them."""

    reports: list[Report]


class Customer(BaseModel):
    """Someone who wants a price."""

    id: str
    context: list[float]


def bare_app(database: str) -> FastAPI:
    """The endpoints. They are plain functions, which FastAPI runs in threads, as its documentation has it."""
    engine = create_engine(database.replace("postgresql://", "postgresql+psycopg://"), pool_size=20)
    if database.startswith("sqlite"):

        @event.listens_for(engine, "connect")
        def _durable(connection, _record):  # type: ignore[no-untyped-def]
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")

    METADATA.create_all(engine)
    app = FastAPI()

    @app.post("/reports")
    def report(body: Report) -> dict[str, int]:
        with engine.begin() as connection:
            connection.execute(insert(BODIES).values(id=body.id, body=body.model_dump_json()))
        return {"accepted": 1}

    @app.post("/batches")
    def batch(body: Batch) -> dict[str, int]:
        with engine.begin() as connection:
            connection.execute(insert(BODIES), [{"id": r.id, "body": r.model_dump_json()} for r in body.reports])
        return {"accepted": len(body.reports)}

    @app.post("/keyed")
    def keyed(body: Batch) -> dict[str, int]:
        """The same with ids that are unique, which is what a retry needs: random ones are spread all over the index."""
        with engine.begin() as connection:
            connection.execute(insert(KEYED), [{"id": r.id, "body": r.model_dump_json()} for r in body.reports])
        return {"accepted": len(body.reports)}

    @app.post("/offers")
    def offer(body: Customer) -> dict[str, str | float]:
        with engine.begin() as connection:
            connection.execute(insert(BODIES).values(id=body.id, price=1.0, body=body.model_dump_json()))
        return {"offer": body.id, "price": 1.0}

    @app.post("/direct")
    async def direct(body: Report) -> dict[str, int]:
        """The same without a thread: it holds up all others while it waits for the disk, yet is often faster."""
        with engine.begin() as connection:
            connection.execute(insert(BODIES).values(id=body.id, body=body.model_dump_json()))
        return {"accepted": 1}

    return app


if __name__ == "__main__":
    uvicorn.run(bare_app(sys.argv[1]), port=int(sys.argv[2]), log_level="warning", access_log=False)
