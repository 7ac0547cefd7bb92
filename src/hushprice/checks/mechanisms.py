"""Checks that every privacy mechanism must pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from hushprice.arrays import Array
from hushprice.checks.refusal import refused
from hushprice.privacy import Mechanism, Report, UnsafeSeed, audit


def mechanism_checks() -> list[Callable[[Mechanism], None]]:
    """The checks for a privacy mechanism."""
    return [
        check_mechanism_is_unbiased,
        check_mechanism_squared_error,
        check_mechanism_survives_an_audit,
        check_mechanism_reports,
        check_mechanism_refuses_bad_input,
    ]


def _inputs(mechanism: Mechanism) -> list[Array]:
    """The first input of each pair of inputs that are hardest to distinguish."""
    return [first for _, first, _ in mechanism.extremes()]


def _sampled(mechanism: Mechanism, g: Array, n: int) -> tuple[Array, Array]:
    """(the clipped input, n decoded reports of it)."""
    return mechanism.clipped(g), mechanism.decode_many(mechanism.privatize_many(np.tile(g, (n, 1)), UnsafeSeed(17)))


def check_mechanism_is_unbiased(mechanism: Mechanism) -> None:
    """Decoded reports have the (clipped) input as their mean (z tests, together two-sided error rate below 1e-4)."""
    n = 30_000
    for g in _inputs(mechanism):
        target, values = _sampled(mechanism, g, n)
        gaps = (values.mean(axis=0) - target) / (values.std(axis=0) / np.sqrt(n))
        assert np.abs(gaps).max() < 5.5, f"the mean is {np.abs(gaps).max():.1f} standard errors off"


def check_mechanism_squared_error(mechanism: Mechanism) -> None:
    """E |report - g|^2 is as stated (z test, two-sided error rate below 1e-4) and at most the stated worst case."""
    n = 30_000
    for g in _inputs(mechanism):
        target, values = _sampled(mechanism, g, n)
        errors = ((values - target) ** 2).sum(axis=1)
        stated = mechanism.squared_error(float(np.linalg.norm(target)))
        gap = errors.mean() - stated
        assert abs(gap) < 5.0 * errors.std() / np.sqrt(n) + 1e-9 * stated, f"stated {stated}, measured {errors.mean()}"
        assert stated <= mechanism.worst_squared_error * (1.0 + 1e-12)


def check_mechanism_survives_an_audit(mechanism: Mechanism) -> None:
    """A short attack does not refute the guarantee (error rate 1e-4)."""
    result = audit(mechanism, samples=4000, confidence=1.0 - 1e-4, rng=UnsafeSeed(5))
    assert result.passed, result.verdict
    assert mechanism.loss.within(mechanism.guarantee), "the loss it is charged for exceeds the guarantee"


def check_mechanism_reports(mechanism: Mechanism) -> None:
    """Reports are whole numbers that survive JSON; malformed reports are refused; noise is fresh each time."""
    one = _inputs(mechanism)[0]
    report = mechanism.privatize(one)
    again = Report.from_dict(json.loads(json.dumps(report.to_dict())))
    assert again == report
    np.testing.assert_array_equal(mechanism.decode(report), mechanism.decode(again))
    assert mechanism.decode(report).shape == (mechanism.dim,)
    many = mechanism.privatize_many(np.tile(one, (5000, 1)), UnsafeSeed(1))
    assert len(np.unique(many, axis=0)) > 1, "the report does not vary"
    assert mechanism.privatize(one, UnsafeSeed(1)) == mechanism.privatize(one, UnsafeSeed(1))
    wrong: tuple[Any, ...] = (
        None, "report", Report("other", report.values), Report(report.kind, (*report.values, 0)),
        Report(report.kind, tuple(2**62 for _ in report.values)),
    )  # fmt: skip
    for bad in wrong:
        refused(mechanism.decode, bad)


def check_mechanism_refuses_bad_input(mechanism: Mechanism) -> None:
    """Bad inputs are refused by a message that does not repeat them; ordinary generators are not accepted."""
    bad: tuple[Any, ...] = (
        np.full(mechanism.dim, np.nan), np.full(mechanism.dim, np.inf), np.full(mechanism.dim + 1, 0.123456),
        ["a"] * mechanism.dim, None, 0.123456,
    )  # fmt: skip
    for g in bad:
        assert "0.123456" not in refused(mechanism.privatize, g), "the message repeats the private input"
    one = _inputs(mechanism)[0]
    for source in (np.random.default_rng(1), 7, "seed"):
        refused(mechanism.privatize, one, source)
    for wrong in ({"epsilon": 0.0}, {"epsilon": -1.0}, {"epsilon": np.nan}, {"epsilon": 1e3}):
        options = {f.name: getattr(mechanism, f.name) for f in fields(mechanism) if f.init}  # type: ignore[arg-type]
        refused(type(mechanism), **(options | wrong))
