"""A reader of request bodies that is strict, and quick where it matters.

msgspec decodes most bodies at once. Of a repeated key it takes the last value; but then the decoded value has fewer
quotation marks than the text when it is encoded again. Such a body, and any body that msgspec refuses or that contains
escapes, is read a second time, carefully: that decides, and finds the words for the refusal.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hushprice.service.http.bodies.mistakes import convert
from hushprice.service.http.bodies.strict_json import parse

_REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class BodyReader:
    """Reads bodies of one type, or also a batch of them under one key.

    Parameters
    ----------
    one : type
        A class of :mod:`hushprice.service.http.bodies.requests`.
    batch : type, optional
        A class with one field, the list of several ``one``.
    free_form : bool
        Whether the type has parts of any form, which only the careful way checks.

    Examples
    --------
    >>> from hushprice.service.http.bodies.requests import OutcomeBody, OutcomesBody
    >>> reader = BodyReader(OutcomeBody, OutcomesBody)
    >>> reader.read(b'{"outcomes": [{"offer": "a", "y": 1}]}')
    [OutcomeBody(offer='a', y=1.0)]
    >>> reader.read(b'{"offer": "a", "y": 1, "y": 0}')
    Traceback (most recent call last):
    hushprice.service.http.responses.Problem: A key is given twice in the same JSON object.
    """

    def __init__(self, one: type[Any], batch: type[Any] | None = None, *, free_form: bool = False) -> None:
        self.types: tuple[type[Any], ...] = (one,) if batch is None else (one, batch)
        self._one, self._batch, self._free_form = one, batch, free_form
        self._key = "" if batch is None else batch.__struct_fields__[0]
        self._batch_start = f'{{"{self._key}"'.encode()
        self._decode_one = msgspec.json.Decoder(one).decode
        self._decode_batch = self._decode_one if batch is None else msgspec.json.Decoder(batch).decode

    def read(self, raw: bytes) -> Any:
        """Read a body.

        Parameters
        ----------
        raw : bytes
            The body as it was sent.

        Returns
        -------
        object
            An instance of the type or, for a reader of batches, a list of one or more.

        Raises
        ------
        Problem
            If the body is not JSON (400) or not of the type (422).
        """
        if b"\\" in raw or self._free_form:
            return self.read_carefully(raw)
        decode = self._decode_batch if raw.startswith(self._batch_start) else self._decode_one
        try:
            body = decode(raw)
        except _REFUSED:
            return self.read_carefully(raw)
        if msgspec.json.encode(body).count(b'"') != raw.count(b'"'):
            return self.read_carefully(raw)
        return self._items(body)

    def read_carefully(self, raw: bytes) -> Any:
        """Read a body as :meth:`read` does, in two steps that take ten times as long."""
        value = parse(raw)
        if self._batch is not None and isinstance(value, dict) and self._key in value:
            return self._items(convert(value, self._batch))
        return self._items(convert(value, self._one))

    def _items(self, body: Any) -> Any:
        if self._batch is None:
            return body
        return getattr(body, self._key) if isinstance(body, self._batch) else [body]
