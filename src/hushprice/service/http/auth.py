"""Who is calling: keys and their roles.

A key is looked up by the SHA-256 of its secret in a table in memory, so that neither the time of the lookup nor a
stolen table reveals a secret. The table is read again every few seconds: a key that was revoked, here or on another
machine, stops working then. If the database is unreachable for longer than ``KEYS_GRACE``, revocations can no longer be
seen, and keys of the table are refused.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hushprice.service.http.access_log import Log
from hushprice.service.http.responses import Problem, retry_later
from hushprice.service.settings import ROLES, Role, StartKey, hash_of
from hushprice.service.storage.store import Key

KEYS_GRACE = 30.0  # seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """The holder of a key; ``stored`` if the key is in the database."""

    name: str
    role: Role
    sha256: str
    stored: bool

    def may(self, role: Role) -> bool:
        """Whether the caller's role includes this one."""
        return ROLES.index(self.role) >= ROLES.index(role)


class Keys:
    """The keys of the database and of the settings.

    Parameters
    ----------
    stored : callable
        Reads the keys of the database.
    start_keys : iterable of StartKey
        The keys of the settings.
    clock : callable
        Returns seconds; for tests.
    """

    def __init__(
        self,
        stored: Callable[[], Iterable[Key]],
        start_keys: Iterable[StartKey] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stored = stored
        self._clock = clock
        self._from_settings = {
            key.sha256: Caller(name=key.name, role=key.role, sha256=key.sha256, stored=False) for key in start_keys
        }
        self._callers = dict(self._from_settings)
        self._read_at = -KEYS_GRACE

    def refresh(self) -> None:
        """Read the table. This runs a query, so call it from another thread than the event loop's."""
        began = self._clock()
        stored = {
            key.sha256: Caller(name=key.name, role=role, sha256=key.sha256, stored=True)
            for key in self._stored()
            for role in ROLES
            if key.role == role and key.revoked is None
        }
        self._callers = {**stored, **self._from_settings}
        self._read_at = began

    async def keep_fresh(self, every: float, log: Log) -> None:
        """Refresh every so many seconds, for ever."""
        while True:
            await asyncio.sleep(every)
            try:
                await asyncio.to_thread(self.refresh)
            except Exception as problem:  # the database is unreachable: use the last table for a while
                log.failure("keys", problem)

    def caller(self, authorization: str | None) -> Caller:
        """Return the holder of the key in ``Authorization: Bearer <secret>``; raise :class:`Problem` if unknown."""
        scheme, _, secret = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not secret:
            raise _unknown("A key is needed: send the header 'Authorization: Bearer <key>'.")
        digest = hash_of(secret.strip())
        caller = self._callers.get(digest)
        if caller is None or not hmac.compare_digest(caller.sha256, digest):
            raise _unknown("This key is not known, or was revoked. 'hushprice keys add' makes one.")
        if caller.stored and self._clock() - self._read_at > KEYS_GRACE:
            raise retry_later(503, "busy", "The table of keys cannot be read: the database is away.", 5)
        return caller


def _unknown(message: str) -> Problem:
    return Problem(401, "unauthorized", message, headers={"WWW-Authenticate": 'Bearer realm="hushprice"'})


def check_role(caller: Caller, role: Role) -> None:
    """Refuse a caller whose role is too low."""
    if not caller.may(role):
        raise Problem(403, "forbidden", f"This needs a key of the role {role}.")
