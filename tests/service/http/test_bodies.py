"""Bodies of requests: the fast reader of batches agrees with the careful one."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from hushprice.service.http.bodies.reader import BodyReader
from hushprice.service.http.bodies.requests import ReportBody, ReportsBody
from hushprice.service.http.responses import Problem

READER = BodyReader(ReportBody, ReportsBody)


def _by_the_letter(raw: bytes) -> Any:
    try:
        return READER.read_carefully(raw)
    except Problem as problem:
        return problem.status, str(problem)


def _at_once(raw: bytes) -> Any:
    try:
        return READER.read(raw)
    except Problem as problem:
        return problem.status, str(problem)


PIECES = [
    b'"', b",", b":", b"{", b"}", b"[", b"]", b"null", b"1", b"-1", b"1.0", b"1e3", b"true", b"NaN", b"Infinity", b" ",
    b"\n", b"\\u0031", b"\\", b"\x00", b"\xff", b'"id":', b'"version":0,', b'"index":1,', b'"report":null,',
    b'"seed":"09af3c5577e1d2b4",', b'"grid":[1,2]', b'"reports":[],', b"99999999999999999999", b"01", b'"x":{},',
    "\ufeff".encode(), b"/**/", b"'",
]  # fmt: skip


def test_a_batch_is_read_at_once_as_by_the_letter() -> None:
    rng = random.Random(7)
    agreed = 0
    for _ in range(8_000):
        made = [{"seed": f"{rng.getrandbits(64):016x}", "index": 1}, {"grid": [3, -4]}, None]
        items = [
            {"id": f"{rng.getrandbits(128):032x}", "version": rng.randrange(9), "report": rng.choice(made)}
            for _ in range(rng.choice([0, 1, 2, 2, 3]))
        ]
        raw = json.dumps({"reports": items}, separators=rng.choice([(",", ":"), (", ", ": ")])).encode()
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            place = rng.randrange(len(raw) + 1)
            raw = raw[:place] + rng.choice(PIECES) + raw[place + rng.choice([0, 0, 1, 7]) :]
        fast = _at_once(raw)
        assert fast == _by_the_letter(raw), raw
        agreed += isinstance(fast, list)
    assert 1_600 < agreed < 6_400, agreed  # both kinds were tried


def test_keys_given_twice_are_noticed_in_a_batch_too() -> None:
    one = b'{"id":"%032x","version":0,"report":{"seed":"09af3c5577e1d2b4","index":1}}'
    for twice in (
        b'{"reports":[%s],"reports":[%s]}' % (one % 1, one % 2),
        b'{"reports":[%s]}' % (one % 1).replace(b'"version":0', b'"version":3,"version":0'),
        b'{"reports":[%s]}' % (one % 1).replace(b'"index":1', b'"index":0,"index":1'),
        b'{"reports":[%s]}' % (one % 1).replace(b'"report":', b'"report":null,"report":'),
    ):
        with pytest.raises(Problem, match="twice"):
            READER.read(twice)
