"""What a process of the service is told when it starts: by options, by ``HUSHPRICE_*`` variables, or in code."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from hushprice.errors import InvalidInput, finite, positive_int, unknown

Role = Literal["device", "seller", "admin"]
LogFormat = Literal["json", "text", "none"]
ROLES: tuple[Role, ...] = ("device", "seller", "admin")
LOG_FORMATS: tuple[LogFormat, ...] = ("json", "text", "none")
SNAPSHOT_EVERY = 10_000  # events
RECENT_KEYS = 50_000  # some 10 MB; see places.py
SETTINGS_VARIABLE = "HUSHPRICE_SETTINGS"  # all of a parent's settings, for its worker processes


@dataclass(frozen=True, kw_only=True)
class StartKey:
    """A key that is in no table: given when the process starts, gone when it ends."""

    name: str
    role: Role
    sha256: str  # of the secret, in hex

    @classmethod
    def of(cls, name: str, role: Role, secret: str) -> StartKey:
        """The key with this secret, of which only the hash is kept."""
        if len(secret) < 16 or not secret.isascii() or not secret.isprintable() or " " in secret:
            raise InvalidInput(
                f"The {role} key must be at least 16 letters, digits and signs without blanks, best of all random. "
                "What was given is not told."
            )
        return cls(name=name, role=role, sha256=hash_of(secret))


def hash_of(secret: str) -> str:
    """The SHA-256 under which a key is kept. A key has 256 random bits, so that nothing slower is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def new_secret(role: Role) -> str:
    """A key nobody can guess, from the operating system's entropy, as ``hp_device_...``."""
    return f"hp_{role}_{secrets.token_urlsafe(32)}"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the service runs.

    >>> Settings(port=0, origins=("https://shop.example",)).workers
    1
    """

    database: str = "sqlite:///hushprice.db"
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    products: str | None = None  # a TOML file
    load: str | None = None  # a Python file that registers policies of one's own
    shop: bool = False  # the demo shop, and with it a device key for everyone who opens it
    shop_key: str | None = None  # that key
    origins: tuple[str, ...] = ()  # of pages elsewhere whose devices may call
    rate: float = 2_000.0  # requests a second of one key; 0: no limit
    burst: float = 4_000.0
    stranger_rate: float = 100.0  # of one address without a valid key; 0: no limit
    stranger_burst: float = 400.0
    body_limit: int = 1 << 20  # bytes
    patience: float = 10.0  # seconds that an answer may wait for the database
    keys_every: float = 2.0  # seconds between two looks at the table of keys
    keys: tuple[StartKey, ...] = ()
    log_format: LogFormat = "json"
    snapshot_every: int = SNAPSHOT_EVERY
    recent_keys: int = RECENT_KEYS  # of all products, that wait in memory for their place in SQLite's index

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise InvalidInput("port must be between 0 and 65535; 0 takes any that is free.")
        positive_int("workers", self.workers, maximum=256)
        positive_int("body_limit", self.body_limit, minimum=1_024)
        positive_int("snapshot_every", self.snapshot_every)
        positive_int("recent_keys", self.recent_keys)
        for name in ("rate", "burst", "stranger_rate", "stranger_burst"):
            finite(name, getattr(self, name), minimum=0.0)
        for name in ("patience", "keys_every"):
            finite(name, getattr(self, name), minimum=0.0, strict=True)
        if self.log_format not in LOG_FORMATS:
            raise unknown("log format", self.log_format, LOG_FORMATS)
        for origin in self.origins:
            _check_origin(origin)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """From ``HUSHPRICE_DATABASE``, ``_HOST``, ``_PORT``, ``_WORKERS``, ``_PRODUCTS``, ``_ORIGINS``, ...

        >>> Settings.from_environment({"HUSHPRICE_PORT": "80", "HUSHPRICE_ORIGINS": "https://a.example"}).port
        80
        """
        given = os.environ if environment is None else environment
        if SETTINGS_VARIABLE in given:
            return cls._read(given[SETTINGS_VARIABLE])
        found: dict[str, Any] = {}
        for field in fields(cls):
            text = given.get(f"HUSHPRICE_{field.name.upper()}")
            if text is not None and field.name not in ("keys", "shop_key"):
                found[field.name] = _parse(field.name, field.default, text)
        settings = cls(**found)
        return settings.with_admin(given["HUSHPRICE_ADMIN_KEY"]) if given.get("HUSHPRICE_ADMIN_KEY") else settings

    def with_admin(self, secret: str, name: str = "start") -> Settings:
        """The same with an admin key that is in no table."""
        return replace(self, keys=(*self.keys, StartKey.of(name, "admin", secret)))

    def with_shop(self) -> Settings:
        """The same with the demo shop on, and a device key for it that ends with this process."""
        secret = new_secret("device")
        return replace(self, shop=True, shop_key=secret, keys=(*self.keys, StartKey.of("shop", "device", secret)))

    def environment(self) -> dict[str, str]:
        """What worker processes are given."""
        return {SETTINGS_VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def _read(cls, text: str) -> Settings:
        plain = json.loads(text)
        return cls(**{**plain, "origins": tuple(plain["origins"]), "keys": tuple(StartKey(**k) for k in plain["keys"])})

    @property
    def local(self) -> bool:
        """Whether only this machine can call."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def told_database(url: str) -> str:
    """A database's address without user, password and options, for people to read.

    >>> told_database("postgresql://me:secret@db.example:5432/prices?sslmode=require")
    'postgresql://db.example:5432/prices'
    >>> told_database("sqlite:///hushprice.db")
    'sqlite:///hushprice.db'
    """
    scheme, mark, rest = url.partition("://")
    if not mark:
        return "the database"
    return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"


def _check_origin(origin: str) -> None:
    parts = urlsplit(origin)
    if origin != "*" and (parts.scheme not in ("http", "https") or not parts.netloc or parts.path or parts.query):
        raise InvalidInput("An origin is a scheme and a host, as https://shop.example (no path), or * for everyone.")


def _parse(name: str, default: Any, text: str) -> Any:
    """A variable's text as the type of the default."""
    try:
        if isinstance(default, bool):
            return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}[
                text.lower()
            ]
        if isinstance(default, tuple):
            return tuple(part.strip() for part in text.split(",") if part.strip())
        return type(default)(text) if isinstance(default, int | float) else text
    except (KeyError, ValueError):
        raise InvalidInput(f"HUSHPRICE_{name.upper()} cannot be read: see 'hushprice serve --help'.") from None
