"""``hushprice serve``, ``hushprice keys`` and ``hushprice verify``: the pricing service.

The service is imported only when a command needs it, since it requires the extra ``hushprice[service]``.
"""

from __future__ import annotations

import json as json_module
import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hushprice.cli.options import AsJson
from hushprice.cli.requirements import needing
from hushprice.errors import HushpriceError, InvalidInput, unknown

if TYPE_CHECKING:
    from hushprice.service.settings import Settings
    from hushprice.service.storage.store import Store

Database = Annotated[
    str,
    typer.Option(
        "--database",
        envvar="HUSHPRICE_DATABASE",
        help="sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME.",
        show_envvar=True,
    ),
]
LoadPolicies = Annotated[
    Path | None,
    typer.Option(
        "--load",
        envvar="HUSHPRICE_LOAD",
        help="A Python file that registers policies of your own.",
        show_envvar=True,
    ),
]
DEFAULT_DATABASE = "sqlite:///hushprice.db"
_RATE = (
    "Requests per second on average that one key may make to one worker process; 0: no limit. A device key, which many "
    "share, may make so many from each address, and ten times as many in all."
)


def serve(
    products: Annotated[
        Path | None,
        typer.Option("--products", envvar="HUSHPRICE_PRODUCTS", help="A TOML file of products.", show_envvar=True),
    ] = None,
    load: LoadPolicies = None,
    database: Database = DEFAULT_DATABASE,
    host: Annotated[
        str, typer.Option("--host", envvar="HUSHPRICE_HOST", help="Address to listen on.", show_envvar=True)
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", envvar="HUSHPRICE_PORT", help="Port; 0 for any that is free.", show_envvar=True)
    ] = 8000,
    workers: Annotated[
        int,
        typer.Option("--workers", "-w", envvar="HUSHPRICE_WORKERS", help="Processes (PostgreSQL).", show_envvar=True),
    ] = 1,
    shop: Annotated[
        bool,
        typer.Option(
            "--shop",
            envvar="HUSHPRICE_SHOP",
            help="Open the demo shop at /shop, with a device key for every visitor.",
            show_envvar=True,
        ),
    ] = False,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            "--origin",
            help="Origin of another site whose pages may call the service, as https://shop.example. Also "
            "HUSHPRICE_ORIGINS, separated by commas.",
            show_default="none",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", envvar="HUSHPRICE_RATE", help=_RATE, show_envvar=True, show_default="2000"),
    ] = None,
    log_format: Annotated[
        str,
        typer.Option(
            "--log-format",
            envvar="HUSHPRICE_LOG_FORMAT",
            help="json, text (without requests that only read) or none, on standard error.",
            show_envvar=True,
            show_default="text in a terminal, json elsewhere",
        ),
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print the address and key as a line of JSON.")] = False,
) -> None:
    """Run the pricing service: private and plain products over HTTP, and a dashboard.

    Without options it stores everything in hushprice.db in this folder, creates a demo product, and prints what to
    open. Further settings are variables: HUSHPRICE_ADMIN_KEY (at least 16 characters), _BURST (twice the rate),
    _STRANGER_RATE (100 per second and address without a key), _STRANGER_BURST (400), _BODY_LIMIT (1048576 bytes),
    _PATIENCE (10 seconds for the database), _KEYS_EVERY (2 seconds between reads of the keys), _SNAPSHOT_EVERY (10000
    events), _RECENT_KEYS (50000 ids in memory before they go into SQLite's index).

    Example: hushprice serve --products products.toml --shop
    """
    with needing("The service", "service"):
        from hushprice.service.http.server import serve as run
    settings = _settings(
        database=database,
        host=host,
        port=port,
        workers=workers,
        products=None if products is None else str(products),
        load=None if load is None else str(load.resolve()),
        log_format=log_format or ("text" if sys.stderr.isatty() else "json"),
        **({"shop": True} if shop else {}),
        **({"origins": tuple(origin)} if origin else {}),
        **_rates(rate),
    )
    run(settings, say=lambda line: print(line, flush=True), as_json=json)


def _rates(rate: float | None) -> dict[str, float]:
    """The rate, and a burst of twice the rate unless the environment sets it."""
    if rate is None:
        return {}
    return {"rate": rate} if "HUSHPRICE_BURST" in os.environ else {"rate": rate, "burst": 2.0 * rate}


def _settings(**options: Any) -> Settings:
    from dataclasses import replace

    from hushprice.service.settings import Settings

    return replace(Settings.from_environment(), **options)


keys = typer.Typer(
    name="keys",
    help="Make, list and revoke keys of the service. Roles: device < seller < admin.",
    no_args_is_help=True,
    add_completion=False,
)


@contextmanager
def _store(url: str, *, create: bool = True) -> Iterator[Store]:
    with needing("The service", "service"):
        from hushprice.service.storage.store import Store
    with closing(Store.open(url, create=create)) as store:
        yield store


@keys.command()
def add(
    name: Annotated[str, typer.Argument(help="What it is for, as till-3: letters, digits, dots and hyphens.")],
    role: Annotated[str, typer.Option("--role", "-r", help="device, seller or admin.")] = "device",
    database: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Make a key and print its secret, which is not stored.

    Example: hushprice keys add web-shop --role device
    """
    with needing("The service", "service"):
        from hushprice.service.http.bodies.requests import check_key_name
        from hushprice.service.settings import ROLES, hash_of, new_secret
    check_key_name(name)
    if role not in ROLES:
        raise unknown("role", role, ROLES)
    secret = new_secret(next(valid for valid in ROLES if valid == role))
    with _store(database) as store:
        number = store.add_key(name, role, hash_of(secret))
    if json:
        typer.echo(json_module.dumps({"id": number, "name": name, "role": role, "secret": secret}))
    else:
        typer.echo(secret)
        Console(stderr=True).print(f"Key {number} ({role}). Keep it: it is not shown again.", highlight=False)


@keys.command(name="list")
def list_keys(database: Database = DEFAULT_DATABASE, json: AsJson = False) -> None:
    """All keys, without their secrets."""
    with _store(database, create=False) as store:
        stored = store.keys()
    columns = ("id", "name", "role", "created", "revoked")
    if json:
        typer.echo(json_module.dumps([{column: getattr(key, column) for column in columns} for key in stored]))
        return
    table = Table(*columns, box=None)
    for key in stored:
        table.add_row(str(key.id), escape(key.name), key.role, _day(key.created), _day(key.revoked))
    Console().print(table)


def _day(at: float | None) -> str:
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


@keys.command()
def revoke(
    key: Annotated[str, typer.Argument(help="The id, or else the name, from 'hushprice keys list'.")],
    database: Database = DEFAULT_DATABASE,
) -> None:
    """Revoke a key. Running services refuse it within seconds."""
    with _store(database, create=False) as store:
        stored = store.keys()
        in_use = [candidate for candidate in stored if candidate.revoked is None]
        ids = [k.id for k in in_use if str(k.id) == key] or [k.id for k in in_use if k.name == key]
        if not ids or not store.revoke_key(ids[0]):
            raise InvalidInput(f"There is no key {key}, or it was revoked before: see 'hushprice keys list'.")
    typer.echo(f"Key {key} is revoked.")


def verify(
    product: Annotated[str | None, typer.Argument(help="One product.", show_default="all")] = None,
    load: LoadPolicies = None,
    database: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Rebuild the state of products from their logs alone and compare it with the snapshots, to the last bit.

    The exit status is 1 if anything differs. It is safe to run next to a running service. A product with a policy of
    your own needs the --load that the service was started with.
    """
    with needing("The service", "service"):
        from hushprice.service.storage.replay import verify as check
    from hushprice.studies.spec_strings import load_policies

    load_policies(load)
    rows: list[dict[str, Any]] = []
    with _store(database, create=False) as store:
        names = store.names()
        if not names:
            raise InvalidInput("There are no products in this database: nothing to verify.")
        if product is not None and product not in names:
            raise unknown("product", product, names)
        for name in names if product is None else [product]:
            try:
                verdict = check(store, name)._asdict()
                rows.append({"product": name, "same": verdict.pop("ok"), **verdict})
            except HushpriceError as problem:
                rows.append({"product": name, "same": False, **_UNKNOWN, "problems": [str(problem)]})
            except Exception as problem:  # its text may contain data of a customer
                text = f"the log cannot be folded ({type(problem).__name__})"
                rows.append({"product": name, "same": False, **_UNKNOWN, "problems": [text]})
    if json:
        typer.echo(json_module.dumps(rows))
    else:
        for row in rows:
            typer.echo("\n  ".join([f"{row['product']}: {_result(row)}", *_digests(row), *row["notes"]]))
    if not all(row["same"] for row in rows):
        raise typer.Exit(1)


_UNKNOWN: dict[str, Any] = {
    **dict.fromkeys(("events", "rebuilt", "compared", "kept", "folded")),
    "problems": [],
    "notes": [],
}


def _result(row: dict[str, Any]) -> str:
    if not row["same"]:
        return f"DIFFERS: {'; '.join(row['problems'])}"
    if row["compared"] is None:
        return f"rebuilt from {row['events']} events; no snapshot to compare with"
    return f"rebuilt from {row['events']} events; the same to the last bit as the snapshot at {row['compared']}"


def _digests(row: dict[str, Any]) -> list[str]:
    lines = []
    if row["compared"] is not None:
        lines += [f"snapshot at {row['compared']}: {row['kept']}", f"rebuilt at {row['compared']}:  {row['folded']}"]
    if row["rebuilt"] is not None:
        lines.append(f"rebuilt at {row['events']}:  {row['rebuilt']} (all events)")
    return lines
