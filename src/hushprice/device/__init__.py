"""A device that prices for its customer and reports privately. It needs the standard library only.

``Device`` talks to the service. It is built from ``Promise`` (the most that a server may ask of this device),
``Params`` (the checked params document of a server), ``quote`` and ``report`` (the two computations of a device) and
``Ledger`` (the customer's privacy budget). Prices and reports have the same bits as in the compiled kernels and in the
JavaScript library.

>>> import json
>>> from hushprice.device import Answer, Device, Ledger, Promise, UnsafeWords
>>> class Service:                                           # stands for the network in this example
...     def send(self, method, path, headers, body):
...         if method == "GET":
...             return Answer(200, {"cache-control": "no-cache"}, json.dumps(PUBLISHED).encode())
...         print("sent:", body.decode())
...         return Answer(200, {}, b'{"accepted": 1, "known": 0, "version": 1}')
>>> PUBLISHED = {
...     "format": "hushprice params", "protocol": 1, "product": "coffee", "version": 1, "mode": "live",
...     "family": "logistic", "dim": 2, "prices": [1, 5], "experiments": [1, 5], "cost": 0, "ladder": [], "ranges": {},
...     "segments": [], "guardrails": {"low": 1, "high": 5}, "phase": "explore", "level": 0, "theta": [0, 0, 0, 0],
...     "learn": True, "centre": [0, 0, 0, 0], "radius": 4, "score": {"shift": 3, "factor": 0.866},
...     "mechanism": {"name": "l2-ball", "epsilon": 1, "delta": 0, "clip": 4, "dim": 4, "pairs": 1, "top": 1, "sd": 0},
...     "features": [{"name": "constant", "value": 1}, {"name": "loyalty", "low": 0, "high": 1}],
...     "currency": "EUR", "baseline": 3}
>>> device = Device(
...     url="https://prices.example.com", key="hp_device_example", product="coffee",
...     promise=Promise(epsilon=1.0, clip=4.0), ledger=Ledger(epsilon=1.5),
...     transport=Service(), words=UnsafeWords(7))           # words makes this example repeatable
>>> offer = device.offer({"loyalty": 0.4})
>>> offer.experiment, 1 <= offer.price <= 5
(True, True)
>>> device.sold(offer, 1)                                    # True: the service has the report
sent: {"id":"403742705094cc5fe135def7c7321af7","version":1,"report":{"seed":"78a820da73c36307","index":1}}
True
>>> device.sold(device.offer({"loyalty": 0.9}), 0)           # the budget is spent
sent: {"id":"ddcbe050f1635ae7ecc0debe863c7c1f","version":1,"report":null}
True
>>> PUBLISHED = PUBLISHED | {"version": 2, "mechanism": PUBLISHED["mechanism"] | {"epsilon": 3}}
>>> device.offer({"loyalty": 0.4})
Traceback (most recent call last):
hushprice.errors.BrokenPromise: The server asks for epsilon = 3; 1 is promised. No price and no report is made.
"""

from hushprice.device.client import Device, Offer, ServiceRefused
from hushprice.device.guarantee import Guarantee, Loss, gaussian_delta
from hushprice.device.ledger import Ledger
from hushprice.device.mechanism import Mechanism
from hushprice.device.params import Feature, Params
from hushprice.device.pricing import context, quote, report
from hushprice.device.promise import Promise
from hushprice.device.randomness import SystemWords, UnsafeWords, Words
from hushprice.device.transport import Answer, HttpTransport, Retry, Transport, Unreachable
from hushprice.errors import BrokenPromise

__all__ = [
    "Answer",
    "BrokenPromise",
    "Device",
    "Feature",
    "Guarantee",
    "HttpTransport",
    "Ledger",
    "Loss",
    "Mechanism",
    "Offer",
    "Params",
    "Promise",
    "Retry",
    "ServiceRefused",
    "SystemWords",
    "Transport",
    "Unreachable",
    "UnsafeWords",
    "Words",
    "context",
    "gaussian_delta",
    "quote",
    "report",
]
