"""Reports as they are written down: every form of a report says the same, on the device's side too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushprice.device.mechanism import Mechanism as DeviceMechanism
from hushprice.errors import InvalidInput
from hushprice.privacy import Gaussian, L2Ball, PrivUnit, Report, UnsafeSeed, VectorMechanism, wire
from tests.protocol.test_protocol import Strict

SCHEMA = json.loads((Path(__file__).parents[2] / "protocol" / "report.schema.json").read_text(encoding="utf-8"))
FORMS = Strict({"$ref": "#/$defs/RandomisedReport", "$defs": SCHEMA["$defs"]})
MECHANISMS: list[VectorMechanism] = [
    L2Ball(epsilon=2.0, clip=1.0, dim=4),
    PrivUnit(epsilon=4.0, clip=1.0, dim=4),
    Gaussian(epsilon=1.0, delta=1e-3, clip=1.0, dim=4),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_all_forms_of_a_report_agree(mechanism: VectorMechanism) -> None:
    """Row, Report, plain data and JSON are the same report; the device's own code writes the same plain data."""
    n, g = 50, np.random.default_rng(1).normal(size=(50, 4))
    words = UnsafeSeed(2).words(n * mechanism.words).reshape(n, -1)
    rows = mechanism.report_rows(g.copy(), words)
    _, pairs, top, *_ = mechanism.spec
    device = DeviceMechanism(
        name=mechanism.name, epsilon=mechanism.epsilon, clip=mechanism.clip, dim=4, pairs=pairs, top=top,
        delta=getattr(mechanism, "delta", 0.0), sd=getattr(mechanism, "sd", 0.0),
    )  # fmt: skip
    plain = [device.report(x, [int(w) for w in row]) for x, row in zip(g.tolist(), words, strict=True)]
    assert [report.to_dict() for report in mechanism.reports(rows)] == plain
    assert [Report.from_dict(report) for report in plain] == mechanism.reports(rows)
    assert [wire.row(report) for report in plain] == rows.tolist()
    assert [wire.checked(report) for report in plain] == plain
    assert [json.loads(wire.encode(report)) for report in plain] == plain
    assert all(FORMS.is_valid(report) for report in plain)
    together = wire.rows(mechanism, plain)
    assert together is not None
    np.testing.assert_array_equal(together, rows)
    assert together.dtype == np.int64


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_reports_of_another_mechanism_are_none(mechanism: VectorMechanism) -> None:
    report = wire.example(mechanism)
    assert wire.rows(mechanism, [report]) is not None
    assert wire.rows(mechanism, []) is not None
    wrong: list[dict[str, Any]] = [{"grid": [0] * 5}, {"seed": "0" * 16, "index": 10**6}, {"grid": [2**70] * 4}]
    for other in wrong:
        assert wire.rows(mechanism, [report, other]) is None


@pytest.mark.parametrize(
    "plain",
    [
        {}, {"seed": "0" * 16}, {"seed": "0" * 15, "index": 0}, {"seed": "0" * 16, "index": True},
        {"seed": "0" * 16, "index": 0.0}, {"seed": "G" * 16, "index": 0}, {"grid": (1, 2)}, {"grid": [1.0]},
        {"grid": [1], "index": 0}, {"bit": 1}, {"kind": "coordinate", "values": [1]},
    ],
    ids=str,
)  # fmt: skip
def test_what_the_service_does_not_accept_is_refused(plain: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="A report must read"):
        wire.checked(plain)
    assert not FORMS.is_valid(plain)
