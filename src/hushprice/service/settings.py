"""Settings of a service process: from options, from ``HUSHPRICE_*`` variables, or from code."""

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
RECENT_KEYS = 50_000  # about 10 MB; see storage/key_index.py
SETTINGS_VARIABLE = "HUSHPRICE_SETTINGS"  # all settings, for worker processes


@dataclass(frozen=True, kw_only=True)
class StartKey:
    """A key that is not in the database: it is valid while the process runs.

    Attributes
    ----------
    name : str
        Its name in the log.
    role : {"device", "seller", "admin"}
        What it permits.
    sha256 : str
        The SHA-256 of its secret, in hexadecimal.
    """

    name: str
    role: Role
    sha256: str

    @classmethod
    def of(cls, name: str, role: Role, secret: str) -> StartKey:
        """Make the key with this secret, of which it holds only the hash."""
        if len(secret) < 16 or not secret.isascii() or not secret.isprintable() or " " in secret:
            raise InvalidInput(
                f"The {role} key must be at least 16 letters, digits and signs without blanks, preferably random. "
                "The key itself is not shown here."
            )
        return cls(name=name, role=role, sha256=hash_of(secret))


def hash_of(secret: str) -> str:
    """The SHA-256 of a secret, in hexadecimal. A key has 256 random bits, so no slower hash is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def new_secret(role: Role) -> str:
    """A random secret from the operating system's entropy, such as ``hp_device_...``."""
    return f"hp_{role}_{secrets.token_urlsafe(32)}"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the service runs.

    Parameters
    ----------
    database : str
        The URL of the database.
    host, port : str, int
        The address to listen on; port 0 for any free one.
    workers : int
        Number of processes.
    products : str, optional
        A TOML file of products.
    load : str, optional
        A Python file that registers the user's own policies.
    shop : bool
        Whether the demo shop is open. Its page contains a device key.
    shop_key : str, optional
        The secret of that key.
    origins : tuple of str
        Origins of other sites whose pages may call the service.
    rate, burst : float
        Requests per second per key, on average and at once; a rate of 0 for no limit.
    stranger_rate, stranger_burst : float
        The same per address without a valid key.
    body_limit : int
        Bytes per request body.
    patience : float
        Seconds that an answer may wait for the database.
    keys_every : float
        Seconds between two reads of the table of keys.
    keys : tuple of StartKey
        Keys in addition to those of the database.
    log_format : {"json", "text", "none"}
        How the log on standard error is written.
    snapshot_every : int
        Events between two snapshots of a product.
    recent_keys : int
        Event keys of all products that may be in memory before they go into SQLite's index.

    Examples
    --------
    >>> Settings(port=0, origins=("https://shop.example",)).workers
    1
    """

    database: str = "sqlite:///hushprice.db"
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    products: str | None = None
    load: str | None = None
    shop: bool = False
    shop_key: str | None = None
    origins: tuple[str, ...] = ()
    rate: float = 2_000.0
    burst: float = 4_000.0
    stranger_rate: float = 100.0
    stranger_burst: float = 400.0
    body_limit: int = 1 << 20
    patience: float = 10.0
    keys_every: float = 2.0
    keys: tuple[StartKey, ...] = ()
    log_format: LogFormat = "json"
    snapshot_every: int = SNAPSHOT_EVERY
    recent_keys: int = RECENT_KEYS

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
        """Read settings from ``HUSHPRICE_DATABASE``, ``_HOST``, ``_PORT``, ``_WORKERS``, ``_PRODUCTS``, and so on.

        Parameters
        ----------
        environment : mapping, optional
            The variables; those of this process if omitted.

        Examples
        --------
        >>> Settings.from_environment({"HUSHPRICE_PORT": "80", "HUSHPRICE_ORIGINS": "https://a.example"}).port
        80
        """
        variables = os.environ if environment is None else environment
        if SETTINGS_VARIABLE in variables:
            return cls._read(variables[SETTINGS_VARIABLE])
        values: dict[str, Any] = {}
        for field in fields(cls):
            text = variables.get(f"HUSHPRICE_{field.name.upper()}")
            if text is not None and field.name not in ("keys", "shop_key"):
                values[field.name] = _parse(field.name, field.default, text)
        settings, secret = cls(**values), variables.get("HUSHPRICE_ADMIN_KEY")
        return settings.with_admin(secret) if secret else settings

    def with_admin(self, secret: str, name: str = "start") -> Settings:
        """The same settings with an admin key that is not in the database."""
        return replace(self, keys=(*self.keys, StartKey.of(name, "admin", secret)))

    def with_shop(self) -> Settings:
        """The same settings with the demo shop open, and a device key for it."""
        secret = new_secret("device")
        return replace(self, shop=True, shop_key=secret, keys=(*self.keys, StartKey.of("shop", "device", secret)))

    def environment(self) -> dict[str, str]:
        """The environment variables for worker processes; :meth:`from_environment` reads them."""
        return {SETTINGS_VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def _read(cls, text: str) -> Settings:
        plain = json.loads(text)
        return cls(**{**plain, "origins": tuple(plain["origins"]), "keys": tuple(StartKey(**k) for k in plain["keys"])})

    @property
    def local(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def redacted_url(url: str) -> str:
    """The URL of a database without user, password and options, safe to show.

    >>> redacted_url("postgresql://me:secret@db.example:5432/prices?sslmode=require")
    'postgresql://db.example:5432/prices'
    >>> redacted_url("sqlite:///hushprice.db")
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
    """Convert the text of a variable to the type of the default."""
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
