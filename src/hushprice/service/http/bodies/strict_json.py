"""JSON text as plain data, read strictly.

NaN and Infinity, repeated keys, deep nesting, NUL, unpaired surrogates, numbers with thousands of digits and text that
is not UTF-8 are refused: a database or JavaScript would read them differently or not at all.
"""

from __future__ import annotations

import json
import math
from typing import Any

from hushprice.service.http.responses import Problem

MAX_DEPTH = 32


class Overflow(float):
    """Infinity, read from a number such as 1e999. msgspec does not take it for a float: its type must be exact."""


def parse(raw: bytes) -> Any:
    """Read JSON text.

    Parameters
    ----------
    raw : bytes
        The text, in UTF-8.

    Returns
    -------
    object
        Dictionaries, lists, strings, numbers, booleans and None.

    Raises
    ------
    Problem
        With status 400; the message does not contain the text.

    Examples
    --------
    >>> parse(b'{"context": [1, 0.5]}')
    {'context': [1, 0.5]}
    """
    try:
        value = _decoder.decode(raw.decode())
    except Problem:
        raise
    except UnicodeDecodeError:
        message = "The body is not UTF-8."
    except RecursionError:
        message = "The body is nested too deeply."
    except ValueError:  # its text contains the body
        message = "The body is not JSON."
    else:
        if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH:
            _check_depth(value)
        if b"\\u" in raw:
            _check_strings(value)
        return value
    raise _malformed(message)


def _malformed(message: str) -> Problem:
    return Problem(400, "malformed", message)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _malformed("A key is given twice in the same JSON object.")
    return members


def _refuse_constant(_: str) -> float:
    raise _malformed("JSON knows no NaN and no Infinity.")


def _number(text: str) -> float:
    number = float(text)
    return Overflow(number) if math.isinf(number) else number


_decoder = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_refuse_constant, parse_float=_number)


def _check_depth(value: Any) -> None:
    """Refuse deep nesting, which other readers cannot follow."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for container in level
            for item in (container.values() if type(container) is dict else container)
            if type(item) is dict or type(item) is list
        ]
        if not level:
            return
    raise _malformed("The body is nested too deeply.")


def _check_strings(value: Any) -> None:
    """Refuse what databases and other languages cannot hold: NUL and unpaired surrogates."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            if "\0" in item or any("\ud800" <= letter <= "\udfff" for letter in item):
                raise _malformed("A text holds NUL or half a surrogate pair.")
        elif isinstance(item, dict):
            pending += item.keys()
            pending += item.values()
        elif isinstance(item, list):
            pending += item
