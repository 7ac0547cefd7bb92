"""The outbox: reports wait on disk from before they are sent until the service acknowledges them.

Each report has one small file, named by its id. A device that is switched off while it sends will send the same report
again with the same id, and never make a second report of one sale. The file holds only what is sent. The files of each
service are in a folder named by its address, so that no report goes to another service.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from hushprice.errors import HushpriceError, InvalidInput
from hushprice.files import replacing

Item = dict[str, Any]
MAX_WAITING = 100_000
_FILE_NAME = re.compile(r"([0-9]{12})-([0-9a-f]{32})\.json")


class Outbox:
    """Reports in the order in which they were made.

    Parameters
    ----------
    folder : path, optional
        Where to store them. Default: in memory, for the lifetime of this object.
    address : str
        Address of the service that they are for.

    Attributes
    ----------
    damaged : int
        Files that could not be read, or whose address is unknown. They stay in the folder.

    Examples
    --------
    >>> box = Outbox()
    >>> box.add({"id": "0" * 32, "version": 3, "report": None})
    >>> len(box), box.first(10)[0]["version"]
    (1, 3)
    """

    def __init__(self, folder: str | PathLike[str] | None = None, *, address: str = "") -> None:
        self._lock = threading.Lock()
        self._items: dict[str, Item] = {}
        self._files: dict[str, Path] = {}
        self._next = 0
        self.damaged = 0
        self._folder = None
        if folder is not None:
            self._folder = Path(folder) / hashlib.sha256(address.encode()).hexdigest()[:16]
            self._read(self._folder)

    def _read(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            files = sorted((path, name) for path in folder.iterdir() if (name := _FILE_NAME.fullmatch(path.name)))
            # until release 0.1.0 files had no folder per address: the service that they are for is unknown
            self.damaged = sum(_FILE_NAME.fullmatch(path.name) is not None for path in folder.parent.iterdir())
        except OSError as problem:
            raise InvalidInput(f"Reports cannot be kept in {folder}: {problem.strerror}.") from None
        for path, name in files:
            number, identity = name.groups()
            self._next = int(number) + 1
            try:
                item = json.loads(path.read_text(encoding="utf-8"))
                if set(item) != {"id", "version", "report"} or item["id"] != identity:
                    raise ValueError
            except (OSError, ValueError, TypeError, RecursionError):
                self.damaged += 1
                continue
            self._items[identity], self._files[identity] = item, path

    def __len__(self) -> int:
        with self._lock:
            return len(self._items)

    def add(self, item: Item) -> None:
        """Store a report. On return, it is on disk."""
        with self._lock:
            if len(self._items) >= MAX_WAITING:
                raise HushpriceError(
                    f"{MAX_WAITING} reports wait for the service already. Find out why it does not take them."
                )
            if self._folder is not None:
                path = self._folder / f"{self._next:012d}-{item['id']}.json"
                try:
                    with replacing(path, mode=0o600) as aside:
                        aside.write_text(json.dumps(item), encoding="utf-8")
                except OSError as problem:
                    raise HushpriceError(
                        f"A report cannot be kept in {self._folder}: {problem.strerror}. None is sent."
                    ) from None
                self._files[item["id"]] = path
            self._next += 1
            self._items[item["id"]] = item

    def first(self, n: int) -> list[Item]:
        """Return the n oldest reports."""
        with self._lock:
            return [item for _, item in zip(range(n), self._items.values(), strict=False)]

    def remove(self, items: Iterable[Item]) -> None:
        """Delete reports."""
        with self._lock:
            for item in items:
                self._items.pop(item["id"], None)
                path = self._files.pop(item["id"], None)
                if path is not None:
                    path.unlink(missing_ok=True)  # a file that reappears after a crash is sent again, which is harmless
