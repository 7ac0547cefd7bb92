"""Mechanisms: the recipe, exactness, noise, calibration, the ledger and the audit."""

from __future__ import annotations

import contextlib
import copy
import inspect
import json
import math
import os
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol.privacy_vectors import privacy_vectors
from scipy import integrate, stats

from hushprice import checks, privacy
from hushprice.errors import BudgetSpent, InvalidInput, LedgerError
from hushprice.kernels import philox, special
from hushprice.kernels import report as kernel
from hushprice.privacy import (
    Gaussian,
    Guarantee,
    L2Ball,
    Ledger,
    Loss,
    Mechanism,
    PrivUnit,
    RandomizedResponse,
    Report,
    UnsafeSeed,
    VectorMechanism,
)
from hushprice.privacy.audit import _bound, low_bits
from hushprice.privacy.caps import best_cap, cap_mass, cap_moment, ideal_cap, mean_product, top_products
from hushprice.privacy.directions import WORD, fair_coin, odds
from hushprice.privacy.gaussian import SLACK
from hushprice.privacy.guarantee import gaussian_delta, gaussian_mu
from tests.support.paths import ROOT

EPSILONS = (0.1, 0.3, 0.5, 1.0, 2.0, 4.0, 8.0)
DIMS = (2, 3, 8, 12, 50)
VECTORS = ROOT / "protocol" / "vectors" / "privacy.json"


def exact_odds(epsilon: float) -> tuple[Fraction, Fraction]:
    """Rational bounds on e^epsilon, by interval arithmetic of another library."""
    with mp.workdps(80):
        value = mp.exp(mp.mpf(epsilon))
        text = mp.nstr(value, 70, strip_zeros=False)
    middle = Fraction(text)
    return middle * (1 - Fraction(1, 10**68)), middle * (1 + Fraction(1, 10**68))


MECHANISMS: list[Mechanism] = [
    *(L2Ball(epsilon=e, clip=3.0, dim=n) for e, n in ((0.3, 1), (1.0, 2), (4.0, 12), (1.0, 50))),
    *(PrivUnit(epsilon=e, clip=0.2, dim=n) for e, n in ((0.3, 2), (1.0, 3), (4.0, 12), (8.0, 4))),
    PrivUnit(epsilon=2.0, clip=1.0, dim=5, pairs=3),
    *(Gaussian(epsilon=e, delta=1e-3, clip=5.0, dim=n) for e, n in ((0.5, 1), (1.0, 12), (4.0, 3))),
    Gaussian(epsilon=1.0, delta=1e-2, clip=1.0, dim=2, calibration="paper"),
    Gaussian(epsilon=1.0, delta=1e-6, clip=1.0, dim=2, calibration="classical"),
    *(RandomizedResponse(epsilon=e) for e in (0.1, 1.0, 5.0)),
]


@pytest.mark.parametrize("check", checks.mechanism_checks(), ids=lambda c: c.__name__)
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_mechanism(mechanism: Mechanism, check: Any) -> None:
    check(mechanism)


# -- the recipe, by an implementation of its own in plain Python -----------------------------------

MASK = 2**64 - 1


def plain_philox(key: list[int], counter: list[int]) -> list[int]:
    k0, k1 = key
    c = list(counter)
    for _ in range(10):
        p0, p1 = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [(p1 >> 64) ^ c[1] ^ k0, p1 & MASK, (p0 >> 64) ^ c[3] ^ k1, p0 & MASK]
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & MASK, (k1 + 0xBB67AE8584CAA73B) & MASK
    return c


def plain_log(x: float) -> float:
    m, e = math.frexp(x)
    if m < math.sqrt(0.5):
        m, e = 2 * m, e - 1
    f = (m - 1.0) / (m + 1.0)
    s, series = f * f, 1.0 / 21
    for k in range(19, 0, -2):
        series = series * s + 1.0 / k
    return e * (2977044471 * 2.0**-32) + (e * 1.9082149292705877e-10 + 2.0 * f * series)


def plain_quantile(u: float) -> float:
    """u <= 1/2 only."""
    q = u - 0.5
    if q >= -0.425:
        (a, b), r = special._CENTRE, 0.180625 - q * q
    else:
        root = math.sqrt(-plain_log(u))
        (a, b), r = (special._MIDDLE, root - 1.6) if root <= 5.0 else (special._TAIL, root - 5.0)
    top, bottom = a[0], b[0]
    for i in range(1, 8):
        top, bottom = top * r + a[i], bottom * r + b[i]
    return q * (top / bottom) if q >= -0.425 else -(top / bottom)


def plain_normal(word: int) -> float:
    value = plain_quantile((((word >> 11) & (2**52 - 1)) + 0.5) * 2.0**-53)
    return -value if word >> 63 else value


def plain_direction(seed: int, number: int, n: int) -> list[float]:
    v: list[float] = []
    for j in range((n + 3) // 4):
        v += [plain_normal(w) for w in plain_philox([seed, 0], [j, number, 0, 0])]
    v, total = v[:n], 0.0
    for x in v:
        total += x * x
    length = math.sqrt(total)
    return [x / length for x in v]


def plain_report(config: dict[str, Any], g: list[float], words: list[int]) -> dict[str, Any]:
    if config["name"] == "randomized-response":
        return {"bit": int(g[0]) if words[0] < fair_coin(config["epsilon"]) else 1 - int(g[0])}
    largest = max(map(abs, g))
    total = 0.0
    for x in g:
        total += (x / largest) * (x / largest) if largest else 0.0
    norm, clip = largest * math.sqrt(total), config["clip"]
    if config["name"] == "gaussian":
        step = config["sd"] / 64.0
        if norm > clip:
            g = [(x / largest) * (clip / math.sqrt(total)) for x in g]
        return {"grid": [math.floor(x / step + 64.0 * plain_normal(w) + 0.5) for x, w in zip(g, words, strict=True)]}
    pairs, top = config.get("pairs", 1), config.get("top", 1)
    dots = []
    for i in range(pairs):
        dot = 0.0
        for x, v in zip(g, plain_direction(words[0], i, len(g)), strict=True):
            dot += (x / largest) * v if largest else 0.0
        dots.append(dot)
    best = sorted(range(pairs), key=lambda i: (-abs(dots[i]), i))[:top]
    inside = [2 * i + (dots[i] < 0) for i in sorted(best)]
    group = inside if words[2] < int(config["coin"], 16) else [k for k in range(2 * pairs) if k not in inside]
    index = group[(words[3] * len(group)) >> 64] if pairs > 1 else group[0]
    flip = (words[1] >> 11) * 2.0**-53 < 0.5 * (1.0 - min(norm / clip, 1.0))
    return {"seed": f"{words[0]:016x}", "index": int(index) ^ int(flip)}


def test_vectors_are_up_to_date_and_follow_the_recipe() -> None:
    """A second implementation with Python integers reproduces every vector to the last bit."""
    stored = json.loads(VECTORS.read_text(encoding="utf-8"))
    assert stored == json.loads(json.dumps(privacy_vectors())), "run: python -m protocol.make_vectors"

    def words(texts: list[str]) -> list[int]:
        return [int(t, 16) for t in texts]

    for case in stored["philox4x64_10"]:
        assert plain_philox(words(case["key"]), words(case["counter"])) == words(case["words"])
    for case in stored["log"]:
        assert plain_log(case["x"]) == case["log"]
    for case in stored["normal_quantile"]:
        assert plain_quantile(case["u"]) == case["value"]
    for case in stored["normal"]:
        assert plain_normal(int(case["word"], 16)) == case["value"]
    for case in stored["direction"]:
        assert plain_direction(int(case["seed"], 16), case["number"], len(case["v"])) == case["v"]
    assert len(stored["report"]) > 100
    for case in stored["report"]:
        report, config = case["report"], case["mechanism"]
        assert plain_report(config, case["g"], words(case["words"])) == report
        if "seed" in report:
            v = plain_direction(int(report["seed"], 16), report["index"] >> 1, len(case["g"]))
            assert [x * (-config["length"] if report["index"] & 1 else config["length"]) for x in v] == case["decoded"]
        elif "grid" in report:
            assert [config["sd"] / 64.0 * k for k in report["grid"]] == case["decoded"]
    for case in stored["coin"]:
        (low, _), m, k, c = exact_odds(case["epsilon"]), case["inside"], case["outside"], int(case["coin"], 16)
        fits = [x * -(-WORD // m) <= low * (WORD - x) * (WORD // k) for x in (c, c + 1)]
        assert fits == [True, False]


def test_philox_agrees_with_numpy_and_with_the_known_answers() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        key, counter = (rng.integers(2**64, size=n, dtype=np.uint64) for n in (2, 4))
        before = counter.copy()
        before[0] -= np.uint64(1)  # NumPy steps its counter before it draws
        if counter[0] == 0:
            continue
        ours = philox.philox(*key, *counter)
        assert list(ours) == np.random.Philox(key=key, counter=before).random_raw(4).tolist()
    zero = philox.philox(*(np.uint64(0),) * 6)  # from the Random123 distribution
    assert [f"{int(w):016x}" for w in zero] == [
        "16554d9eca36314c", "db20fe9d672d0fdc", "d7e772cee186176b", "7e68b68aec7ba23b",
    ]  # fmt: skip


def test_logarithm_and_quantile_are_as_accurate_as_the_slack_assumes() -> None:
    """The normal quantile is within 4e-15, the figure in the derivation of ``SLACK``."""
    rng = np.random.default_rng(1)
    tails = np.concatenate([0.5 * rng.random(3000), 0.5 * 10.0 ** -rng.uniform(0, 15.9, 3000), [2.0**-54, 0.075]])
    with mp.workdps(40):
        for u in tails:
            q = mp.mpf(float(special.normal_quantile(u)))
            assert abs((mp.ncdf(q) - mp.mpf(u)) / mp.npdf(q)) < 4e-15
        for x in 10.0 ** rng.uniform(-300, 300, 2000):
            assert abs(mp.mpf(float(special.log(x))) / mp.log(mp.mpf(x)) - 1) < 4e-16


def test_directions_are_uniform() -> None:
    """Each coordinate has the right distribution and two are uncorrelated (Kolmogorov, error rate 1e-6 each)."""
    n, m = 5, 40_000
    v, room = np.empty((m, n)), np.empty(n + 3, dtype=np.uint64)
    for i in range(m):
        philox.direction(np.uint64(i), 0, v[i], room)
    np.testing.assert_allclose((v**2).sum(axis=1), 1.0, rtol=1e-14)
    for k in range(n):
        assert stats.kstest(v[:, k] ** 2, stats.beta(0.5, (n - 1) / 2).cdf).pvalue > 1e-6
    assert np.abs(v.T @ v / m - np.eye(n) / n).max() < 5.5 / n / math.sqrt(m)


# -- exactness -------------------------------------------------------------------------------------


def direction_mechanisms() -> list[Any]:
    mechanisms: list[Any] = []
    for epsilon in EPSILONS:
        for dim in DIMS:
            mechanisms += [kind(epsilon=epsilon, clip=2.0, dim=dim) for kind in (L2Ball, PrivUnit)]
    return mechanisms


@pytest.mark.parametrize("mechanism", direction_mechanisms(), ids=str)
def test_no_report_is_likelier_than_allowed_in_exact_arithmetic(mechanism: Any) -> None:
    """Over every pair of inputs: a report is likeliest inside S and least likely outside, counted in words."""
    pairs, top = mechanism.shape
    low, high = exact_odds(mechanism.epsilon)
    inside = -(-WORD // top) if pairs > 1 else WORD
    outside = WORD // (2 * pairs - top) if pairs > 1 else WORD
    worst = Fraction(mechanism.coin * inside, (WORD - mechanism.coin) * outside)
    assert worst <= low, "some report is more than e^epsilon times as likely from one customer as from another"
    one_more = Fraction((mechanism.coin + 1) * inside, (WORD - mechanism.coin - 1) * outside)
    assert one_more > high * (1 - Fraction(1, 2**40)), "the coin is further from the limit than rounding calls for"


@pytest.mark.parametrize("mechanism", direction_mechanisms(), ids=str)
def test_every_report_of_many_inputs_in_exact_arithmetic(mechanism: Any) -> None:
    """All reports of some seeds, for ordinary and awkward inputs: chances add to 1, ratios stay within e^epsilon."""
    pairs, _ = mechanism.shape
    low, _ = exact_odds(mechanism.epsilon)
    rng = np.random.default_rng(mechanism.dim)
    n = mechanism.dim
    axis = np.eye(n)[0]
    inputs = [
        *rng.standard_normal((3, n)), 0.0 * axis, axis, -axis, 5e-324 * axis, 1e308 * np.ones(n), -1e-200 * np.ones(n),
        2.0 * axis * (1 + 2.0**-52), np.where(np.arange(n) % 2, 1e-16, 1.0),
    ]  # fmt: skip
    for seed in rng.integers(-(2**63), 2**63 - 1, size=2 if pairs > 16 else 4):
        chances = [mechanism.probabilities(int(seed), g) for g in inputs]
        assert all(sum(row) == 1 for row in chances)
        for column in zip(*chances, strict=True):
            assert min(column) > 0
            assert max(column) / min(column) <= low


@pytest.mark.parametrize(
    "mechanism", [L2Ball(epsilon=1.0, clip=1.0, dim=3), PrivUnit(epsilon=2.0, clip=1.0, dim=3)], ids=str
)
def test_stated_probabilities_are_those_of_the_code(mechanism: Any) -> None:
    """Reports of one seed, counted over random words, against ``probabilities`` (chi-square, error rate 1e-6)."""
    m, seed = 60_000, 12345
    for g in (np.array([0.3, -0.2, 0.1]), np.array([2.0, 0.0, 1.0])):
        words = UnsafeSeed(9).words(m * mechanism.words).reshape(m, -1).copy()
        words[:, 0] = seed
        rows = mechanism.report_rows(np.tile(g, (m, 1)), words)
        size = 2 * mechanism.shape[0]
        counts = np.bincount(rows[:, 1], minlength=size)
        expected = [float(chance) * m for chance in mechanism.probabilities(seed, g)]
        assert stats.chisquare(counts, expected).pvalue > 1e-6


def test_coin_is_rounded_toward_one_half() -> None:
    for epsilon in (1e-6, *EPSILONS, 20.0, 30.0):
        coin, (low, _) = fair_coin(epsilon), exact_odds(epsilon)
        assert Fraction(coin, WORD - coin) <= low < Fraction(coin + 1, WORD - coin - 1) * (1 + Fraction(1, 10**50))
        assert odds(epsilon) <= low
        assert coin > WORD // 2


def test_randomized_response_is_exact() -> None:
    for epsilon in EPSILONS:
        mechanism = RandomizedResponse(epsilon=epsilon)
        assert Fraction(mechanism.coin, WORD - mechanism.coin) <= exact_odds(epsilon)[0]
        edge = np.array([[mechanism.coin - 1], [mechanism.coin]], dtype=np.uint64)
        assert mechanism.report_rows(np.ones((2, 1)), edge).ravel().tolist() == [1, 0]


# -- caps ------------------------------------------------------------------------------------------


def test_cap_mass_and_moment() -> None:
    for gamma in (0.0, 0.2, 0.7, 0.99):
        assert cap_mass(gamma, 2) == pytest.approx(math.acos(gamma) / math.pi, rel=1e-12)
        assert cap_mass(gamma, 3) == pytest.approx((1 - gamma) / 2, rel=1e-12)
        for n in (3, 12, 50):
            scale = math.exp(math.lgamma(n / 2) - math.lgamma((n - 1) / 2)) / math.sqrt(math.pi)
            for power, value in ((0, cap_mass(gamma, n)), (1, cap_moment(gamma, n))):
                numeric = integrate.quad(
                    lambda t, k=power, n=n, c=scale: c * t**k * (1 - t * t) ** ((n - 3) / 2), gamma, 1, epsabs=1e-14
                )[0]
                assert value == pytest.approx(numeric, rel=1e-8, abs=1e-13)


def test_ideal_cap_is_the_best() -> None:
    for epsilon in EPSILONS:
        for n in DIMS:
            cap, e = ideal_cap(epsilon, n), math.exp(epsilon)
            for gamma in np.linspace(0.0, 0.98, 500):
                q = cap_mass(gamma, n)
                assert ((e * q + 1 - q) / ((e - 1) * cap_moment(gamma, n))) ** 2 >= cap.squared_length * (1 - 1e-9)


@pytest.mark.parametrize(
    ("pairs", "top", "n"), [(1, 1, 7), (4, 4, 2), (8, 3, 12), (32, 5, 50), (128, 1, 3), (64, 60, 2)]
)
def test_top_products(pairs: int, top: int, n: int) -> None:
    """Against simulation (z test, error rate 1e-6) and against adaptive quadrature."""
    rng = np.random.default_rng(0)
    t = np.sort(np.sqrt(rng.beta(0.5, (n - 1) / 2, size=(20_000, pairs))), axis=1)[:, -top:].sum(axis=1)
    value = top_products(pairs, top, n)
    assert abs(t.mean() - value) < 4.9 * t.std() / math.sqrt(len(t))
    law = stats.beta(0.5, (n - 1) / 2)

    def integrand(s: float) -> float:
        return float(pairs * math.sqrt(law.isf(s)) * stats.binom.cdf(top - 1, pairs - 1, s))

    assert value == pytest.approx(integrate.quad(integrand, 0, 1, limit=400)[0], rel=1e-6)


def test_privunit_is_near_the_ideal_cap_and_far_below_l2ball() -> None:
    for epsilon in EPSILONS:
        for n in DIMS:
            pairs, top = best_cap(epsilon, n)
            assert all(
                mean_product(epsilon, n, pairs)[0] >= _product(epsilon, n, pairs, m) - 1e-12
                for m in range(1, pairs + 1)
            )
            cap = PrivUnit(epsilon=epsilon, clip=1.0, dim=n)
            assert cap.shape == (pairs, top)
            assert 0.999 < cap.worst_squared_error / ideal_cap(epsilon, n).squared_length < 1.0501
            assert cap.worst_squared_error <= L2Ball(epsilon=epsilon, clip=1.0, dim=n).worst_squared_error * (1 + 1e-9)
    for n in (8, 12, 50):
        ratio = [kind(epsilon=4.0, clip=1.0, dim=n).worst_squared_error for kind in (PrivUnit, L2Ball)]
        assert 0.25 < ratio[0] / ratio[1] < 0.33, "about a quarter of the noise at epsilon = 4"


def _product(epsilon: float, n: int, pairs: int, top: int) -> float:
    q = top / (top + math.exp(-epsilon) * (2 * pairs - top))
    return top_products(pairs, top, n) * (q / top - (1 - q) / (2 * pairs - top))


def test_l2ball_has_the_papers_constant() -> None:
    for epsilon in EPSILONS:
        for n in (1, 2, 12, 50):
            ratio = (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)
            B = 3.0 * ratio * math.sqrt(math.pi) * math.gamma((n + 1) / 2) / math.gamma(n / 2)
            assert L2Ball(epsilon=epsilon, clip=3.0, dim=n).length == pytest.approx(B, rel=1e-9)


# -- the Gaussian ----------------------------------------------------------------------------------


def test_gaussian_curve_against_another_library() -> None:
    with mp.workdps(50):
        for epsilon in (0.0, 0.1, 1.0, 4.0):
            for mu in (0.05, 0.5297, 1.0, 3.0):
                a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
                exact = mp.ncdf(a) - mp.exp(epsilon) * mp.ncdf(b)
                assert gaussian_delta(epsilon, mu) == pytest.approx(float(exact), rel=1e-7, abs=1e-300)
                assert gaussian_delta(epsilon, mu) >= exact, "rounding must count against the claim"
        for epsilon, mu in ((4.28e-6, 3e-10), (1e-6, 1e-3), (1e-5, 1e-5), (0.00517, 0.000911), (1e-7, 1e-8)):
            a, b = mu / mp.mpf(2) - mp.mpf(epsilon) / mu, -mu / mp.mpf(2) - mp.mpf(epsilon) / mu
            assert gaussian_delta(epsilon, mu) >= mp.ncdf(a) - mp.exp(mp.mpf(epsilon)) * mp.ncdf(b)
    for delta in (1e-2, 1e-3, 1e-6, 1e-9):
        for mu in (0.1, 0.5, 2.0):
            assert gaussian_delta(Loss(mu=mu).guarantee(delta).epsilon, mu) <= delta * (1 + 1e-9)
        for epsilon in (0.1, 1.0, 8.0):
            assert gaussian_delta(epsilon, gaussian_mu(epsilon, delta)) <= delta


@pytest.mark.parametrize("mechanism", [m for m in MECHANISMS if isinstance(m, VectorMechanism)], ids=str)
def test_the_noise_of_a_mechanism_is_stated_if_it_adds_some(mechanism: VectorMechanism) -> None:
    assert mechanism.noise_sd == (mechanism.sd if isinstance(mechanism, Gaussian) else 0.0)
    if mechanism.noise_sd:
        assert mechanism.squared_error(0.0) == pytest.approx(mechanism.dim * mechanism.noise_sd**2, rel=1e-4)


def test_gaussian_calibration() -> None:
    """sigma for (1, 1e-3) at clip 1, by a root finder of another library, and the epsilon of the paper's sigma."""
    with mp.workdps(30):
        mu = mp.findroot(lambda m: mp.ncdf(m / 2 - 1 / m) - mp.e * mp.ncdf(-m / 2 - 1 / m) - mp.mpf("1e-3"), 0.4)
    analytic = Gaussian(epsilon=1.0, delta=1e-3, clip=1.0, dim=2)
    assert analytic.sd == pytest.approx(float(2 / mu), rel=1e-7)
    assert round(analytic.sd, 3) == 5.149
    assert analytic.guarantee == Guarantee(1.0, 1e-3)
    for delta, true in ((1e-3, 1.449), (1e-2, 1.287)):
        paper = Gaussian(epsilon=1.0, delta=delta, clip=7.0, dim=12, calibration="paper")
        assert paper.sd == pytest.approx(7.0 * math.sqrt(2 * math.log(1.25 / delta)))
        assert round(paper.guarantee.epsilon, 3) == true
        classical = Gaussian(epsilon=1.0, delta=delta, clip=7.0, dim=12, calibration="classical")
        assert classical.sd == pytest.approx(2 * paper.sd)
        assert classical.guarantee.epsilon < 1.0
    for calibration in ("paper", "classical"):
        with pytest.raises(InvalidInput, match="epsilon above 1"):
            Gaussian(epsilon=1.5, delta=1e-3, clip=1.0, dim=2, calibration=calibration)
    with pytest.raises(InvalidInput, match="too small"):
        Gaussian(epsilon=1.0, delta=1e-11, clip=1.0, dim=12)
    with pytest.raises(InvalidInput, match="calibration"):
        Gaussian(epsilon=1.0, delta=1e-3, clip=1.0, dim=2, calibration="loose")  # type: ignore[arg-type]
    for delta in (0.0, -1.0, 0.9, math.nan):
        with pytest.raises(InvalidInput):
            Gaussian(epsilon=1.0, delta=delta, clip=1.0, dim=2)


@pytest.mark.parametrize("g", [0.0, 1.0, -0.7312345, 0.01])
def test_gaussian_reports_are_within_the_slack_of_exact_ones(g: float) -> None:
    """The implemented chance of every grid point, counted over all 2^53 words, against an exact rounded Gaussian."""
    mechanism = Gaussian(epsilon=1.0, delta=1e-3, clip=1.0, dim=1)
    h = mechanism.scale
    edges = np.arange(math.floor(g / h) - 540, math.floor(g / h) + 541)

    def reports(rank: Any) -> Any:
        """The report of the word with this rank among all, from the lowest noise to the highest."""
        low = rank < 2**52
        words = np.where(low, rank << 11, ((2**53 - 1 - rank) << 11) | -(2**63)).astype(np.int64).view(np.uint64)
        return mechanism.report_rows(np.full((len(rank), 1), g), words.reshape(-1, 1))[:, 0]

    below, above = np.zeros(len(edges), dtype=np.int64), np.full(len(edges), 2**53, dtype=np.int64)
    while (below < above).any():  # the first rank whose report reaches the edge
        middle = (below + above) // 2
        reached = reports(np.minimum(middle, 2**53 - 1)) >= edges
        below, above = np.where(reached, below, middle + 1), np.where(reached, middle, above)
    with mp.workdps(40):
        exact = [mp.ncdf((mp.mpf(int(k)) - mp.mpf("0.5") - mp.mpf(g) / mp.mpf(h)) / 64) for k in edges]
        total = sum(abs(mp.mpf(int(b)) / 2**53 - p) for b, p in zip(below, exact, strict=True))
    assert float(total) + 2.0**-53 < SLACK


def test_rounding_to_the_grid_costs_no_privacy() -> None:
    """delta of the rounded Gaussian, summed over the grid, stays below that of the continuous one for every shift."""
    sd, epsilon = 64.0, 1.0
    mu = gaussian_mu(epsilon, 1e-3)
    k = np.arange(-1500, 1501)
    for shift in np.linspace(0.1, 1.0, 7) * mu * sd:
        for offset in (0.0, 0.3, 0.5):
            p = np.diff(stats.norm.cdf((np.append(k, 1501) - 0.5 - offset) / sd))
            q = np.diff(stats.norm.cdf((np.append(k, 1501) - 0.5 - offset - shift) / sd))
            assert np.maximum(p - math.exp(epsilon) * q, 0).sum() <= gaussian_delta(epsilon, shift / sd) + 1e-12


# -- the interface ---------------------------------------------------------------------------------


def test_no_mechanism_takes_a_noise_level() -> None:
    for cls in privacy.REGISTRY.values():
        names = set(inspect.signature(cls).parameters)
        assert not names & {"sensitivity", "sigma", "sd", "scale", "noise", "mu", "seed", "coin", "length"}
        assert names <= {"epsilon", "delta", "clip", "dim", "pairs", "calibration"}


def test_noise_is_the_operating_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def urandom(n: int) -> bytes:
        asked.append(n)
        return bytes(n)

    mechanisms = L2Ball(epsilon=1.0, clip=1.0, dim=4), Gaussian(epsilon=1.0, delta=1e-3, clip=1.0, dim=4)
    for mechanism in mechanisms:
        mechanism.privatize(np.zeros(4), UnsafeSeed(1))  # compiling a kernel takes random names of files
    monkeypatch.setattr("os.urandom", urandom)
    for mechanism in mechanisms:
        mechanism.privatize(np.zeros(4))
    assert asked == [24, 32]
    with pytest.raises(InvalidInput, match="UnsafeSeed"):
        L2Ball(epsilon=1.0, clip=1.0, dim=4).privatize(np.zeros(4), np.random.default_rng(1))  # type: ignore[arg-type]
    for seed in (None, True, -1, "a"):
        with pytest.raises(InvalidInput):
            UnsafeSeed(seed)  # type: ignore[arg-type]


def test_bad_reports_and_names() -> None:
    assert str(privacy.audit(RandomizedResponse(epsilon=1.0), samples=200)).startswith("randomized-response: holds")
    for subject in ("l2-ball", L2Ball):
        with pytest.raises(InvalidInput, match="takes a mechanism"):
            privacy.audit(subject)  # type: ignore[arg-type]
    for values in ((2**64, 0), ("a", 0), (1.7, 0), (True, 0), 5):
        with pytest.raises(InvalidInput):
            Report("directions", values)  # type: ignore[arg-type]
    own = Report("coordinate", (1, 2, 3))
    assert Report.from_dict(own.to_dict()) == own
    ball = L2Ball(epsilon=1.0, clip=1.0, dim=2)
    sent = ball.privatize_many(np.zeros((3, 2)))
    np.testing.assert_array_equal(ball.rows(ball.reports(sent)), sent)
    for wrong in ({"seed": "0" * 16, "index": 0}, Report("grid", (1, 2))):
        with pytest.raises(InvalidInput, match=r"from_dict|directions"):
            ball.decode(wrong)  # type: ignore[arg-type]
    for plain in (
        {},
        {"seed": "12", "index": 0},
        {"seed": "-000000000000001", "index": 0},
        {"kind": "directions", "values": [1, 0]},
        {"seed": "g" * 16, "index": 0},
        {"bit": True},
        {"grid": [0.5]},
        3,
        None,
    ):
        with pytest.raises(InvalidInput):
            Report.from_dict(plain)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="Did you mean 'gaussian'"):
        privacy.build("gausian", epsilon=1.0)
    with pytest.raises(InvalidInput, match="options"):
        privacy.build("l2-ball", epsilon=1.0, clip=1.0, dim=2, sigma=3.0)
    with pytest.raises(InvalidInput, match="dim >= 2"):
        PrivUnit(epsilon=1.0, clip=1.0, dim=1)
    for clip in (0.0, -1.0, math.inf):
        with pytest.raises(InvalidInput):
            L2Ball(epsilon=1.0, clip=clip, dim=2)
    mechanism = L2Ball(epsilon=1.0, clip=1.0, dim=2)
    for rows in (np.zeros((2, 3), dtype=np.int64), np.zeros((2, 2)), np.array([[0, 2]]), np.array([[0, -1]])):
        with pytest.raises(InvalidInput):
            mechanism.decode_many(rows)


@given(st.integers(0, 2**64 - 1), st.integers(0, 1))
def test_any_seed_survives_json(seed: int, index: int) -> None:
    report = Report("directions", (seed - (seed >> 63 << 64), index))
    assert Report.from_dict(json.loads(json.dumps(report.to_dict()))) == report


# -- the ledger ------------------------------------------------------------------------------------


def test_losses_add_up() -> None:
    ball, noise = L2Ball(epsilon=0.1, clip=1.0, dim=2), Gaussian(epsilon=0.5, delta=1e-4, clip=1.0, dim=2)
    assert (ball.loss + ball.loss).guarantee() == Guarantee(0.2)
    nine = sum((noise.loss for _ in range(9)), Loss())
    tripled = Loss(mu=3 * noise.loss.mu, slack=9 * noise.loss.slack)
    assert nine.guarantee(1e-4).epsilon == pytest.approx(tripled.guarantee(1e-4).epsilon, rel=1e-9)
    assert nine.guarantee(1e-4).epsilon < 9 * 0.5, "the curve is far below basic composition"
    assert gaussian_delta(nine.guarantee(1e-4).epsilon, nine.mu) == pytest.approx(1e-4, rel=1e-4)
    both = (ball.loss + noise.loss).guarantee(1e-4)
    assert both.epsilon == pytest.approx(0.6, rel=1e-6)
    wide = Loss(mu=1.0, slack=1e-9)  # the slack makes very large epsilons useless, not the ones between
    assert 4.9 < wide.guarantee(1e-6).epsilon < 5.0
    assert wide.within(Guarantee(6.0, 1e-6))
    assert wide.within(Guarantee(30.0, 1e-6))
    assert Ledger(epsilon=30.0, delta=1e-3).allows(Gaussian(epsilon=1.0, delta=1e-4, clip=1.0, dim=2))
    assert Loss(slack=0.01).guarantee(1e-4).epsilon == math.inf
    assert "give its customer away" in str(Loss(slack=0.01).guarantee(1e-4))


def test_ledger_refuses_at_the_cap_and_charges_nothing() -> None:
    mechanism = L2Ball(epsilon=0.1, clip=1.0, dim=2)
    ledger = Ledger(epsilon=0.3)
    for _ in range(3):
        ledger.spend(mechanism)
    with pytest.raises(BudgetSpent, match="budget"):
        ledger.spend(mechanism)
    assert ledger.reports == 3
    assert ledger.guarantee.epsilon == pytest.approx(0.3)
    with pytest.raises(BudgetSpent):  # a cap without a delta has no room for Gaussian noise
        Ledger(epsilon=100.0).spend(Gaussian(epsilon=0.1, delta=1e-3, clip=1.0, dim=2))
    for wrong in ({"epsilon": 0}, {"epsilon": math.nan}, {"epsilon": 1, "delta": -1}):
        with pytest.raises(InvalidInput):
            Ledger(**wrong)


def test_ledger_survives_restarts_and_refuses_damage(tmp_path: Path) -> None:
    mechanism, file = L2Ball(epsilon=0.5, clip=1.0, dim=2), tmp_path / "ledger.json"
    Ledger(epsilon=1.0, path=file).spend(mechanism)
    again = Ledger(epsilon=1.0, path=file)
    assert again.reports == 1
    again.spend(mechanism)
    with pytest.raises(BudgetSpent):
        Ledger(epsilon=1.0, path=file).spend(mechanism)
    whole = file.read_text(encoding="utf-8")
    for damaged in ("", whole[:-10], whole.replace("1.0", "0.5"), "[]", "{}", "[" * 100_000):
        file.write_text(damaged, encoding="utf-8")
        with pytest.raises(LedgerError, match="No report is made"):
            Ledger(epsilon=1.0, path=file)
        with pytest.raises(LedgerError):
            again.spend(mechanism)
    file.unlink()
    with pytest.raises(LedgerError):  # a vanished file is not a fresh start, neither for a running device
        again.spend(mechanism)
    with pytest.raises(LedgerError):  # nor for a new one
        Ledger(epsilon=1.0, path=file)
    for path in (tmp_path / "no" / "such" / "folder.json", "a\0b"):
        with pytest.raises(LedgerError):
            Ledger(epsilon=1.0, path=path)


def test_ledger_cannot_be_set_back_raised_or_doubled(tmp_path: Path) -> None:
    mechanism, file = L2Ball(epsilon=0.5, clip=1.0, dim=2), tmp_path / "ledger.json"
    ledger = Ledger(epsilon=1.0, path=file)
    early = file.read_bytes()
    ledger.spend(mechanism)
    with pytest.raises(InvalidInput, match="not raised"):
        Ledger(epsilon=2.0, path=file)
    link = tmp_path / "link.json"
    link.symlink_to(file)
    other = Ledger(epsilon=1.0, path=link)  # the same ledger by another name
    other.spend(mechanism)
    assert ledger.reports == other.reports == 2
    assert repr(ledger) == "<Ledger: 2 reports, epsilon 1 of 1 spent>"
    with pytest.raises(BudgetSpent):
        ledger.spend(mechanism)
    file.write_bytes(early)  # set back: its log knows better, for this object and after a restart
    for each in (ledger, Ledger(epsilon=1.0, path=file)):
        assert each.reports == 2
        with pytest.raises(BudgetSpent):
            each.spend(mechanism)
    before = file.read_bytes()
    lowered = Ledger(epsilon=0.9, path=file)
    file.write_bytes(before)  # the log knows of the lower cap too
    with pytest.raises(InvalidInput, match="not raised"):
        Ledger(epsilon=1.0, path=file)
    assert lowered.cap.epsilon == 0.9
    ledger.allows(mechanism)
    assert ledger.cap.epsilon == 0.9, "a cap that was lowered binds every object"
    second = tmp_path / "second.json"
    second.hardlink_to(file)
    with pytest.raises(LedgerError, match="second name"):
        Ledger(epsilon=0.9, path=second)
    dangling = tmp_path / "dangling.json"
    dangling.symlink_to(tmp_path / "nowhere" / "ledger.json")
    with pytest.raises(LedgerError, match="link to nothing"):
        Ledger(epsilon=1.0, path=dangling)
    with pytest.raises(TypeError, match="cannot be copied"):
        copy.deepcopy(Ledger(epsilon=1.0))
    with pytest.raises(InvalidInput, match="mechanism"):
        Ledger(epsilon=1.0).spend(0.4)  # type: ignore[arg-type]
    for wrong in ({"epsilon": math.nan}, {"epsilon": -5.0}, {"mu": math.inf}):
        with pytest.raises(InvalidInput):
            Loss(**wrong)


def test_ledger_in_memory_is_shared_by_threads() -> None:
    ledger, mechanism, granted = Ledger(epsilon=1.0), RandomizedResponse(epsilon=0.1), []

    def spend() -> None:
        for _ in range(20):
            with contextlib.suppress(BudgetSpent):
                ledger.spend(mechanism)
                granted.append(1)

    threads = [threading.Thread(target=spend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == ledger.reports == 10


def test_ledger_is_shared_by_processes(tmp_path: Path) -> None:
    """Four processes race for a budget of 30 reports: exactly 30 are granted."""
    file = tmp_path / "ledger.json"
    code = (
        "import sys\n"
        "from hushprice.privacy import Ledger, RandomizedResponse\n"
        "from hushprice.errors import BudgetSpent\n"
        "ledger, granted = Ledger(epsilon=3.0, path=sys.argv[1]), 0\n"
        "for _ in range(20):\n"
        "    try:\n"
        "        ledger.spend(RandomizedResponse(epsilon=0.1)); granted += 1\n"
        "    except BudgetSpent:\n"
        "        pass\n"
        "print(granted)\n"
    )
    racers = [subprocess.Popen([sys.executable, "-c", code, str(file)], stdout=subprocess.PIPE) for _ in range(4)]
    assert sum(int(racer.communicate()[0]) for racer in racers) == 30
    assert Ledger(epsilon=3.0, path=file).reports == 30


# -- the audit -------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_audit_certifies_nearly_all_of_a_pure_claim(epsilon: float) -> None:
    for mechanism in (L2Ball(epsilon=epsilon, clip=2.0, dim=4), RandomizedResponse(epsilon=epsilon)):
        result = privacy.audit(mechanism, samples=60_000, rng=UnsafeSeed(1))
        assert result.passed
        assert result.epsilon > 0.85 * epsilon, "an attack this weak would catch nobody"
        assert "holds" in result.verdict


@pytest.mark.parametrize("control", privacy.controls(epsilon=1.0, delta=1e-3, clip=3.0, dim=2), ids=lambda c: c.name)
def test_audit_catches_every_control(control: Mechanism) -> None:
    samples = 200_000 if "sensitivity" in control.name else 50_000  # the smallest excess
    result = privacy.audit(control, samples=samples, rng=UnsafeSeed(2))
    assert not result.passed
    assert "BROKEN" in result.verdict


def test_float_gaussian_is_caught_by_its_low_order_bits_alone() -> None:
    control = next(c for c in privacy.controls(epsilon=1.0, delta=1e-3, clip=1.0, dim=2) if "floating" in c.name)
    result = privacy.audit(control, samples=50_000, rng=UnsafeSeed(3))
    assert "low-order bits" in result.worst.event
    assert result.epsilon > 3.0


def test_audit_bound_is_clopper_pearson() -> None:
    for often, rarely, n in ((50, 10, 100), (100, 0, 100), (3, 1, 1000)):
        low = stats.binomtest(often, n).proportion_ci(1 - 0.01, method="exact").low
        high = stats.binomtest(rarely, n).proportion_ci(1 - 0.01, method="exact").high
        assert _bound(often, rarely, n, 0.0, 0.01) == pytest.approx(max(0.0, math.log(low / high)), abs=1e-9)
    assert _bound(0, 0, 100, 0.0, 0.01) == 0.0
    assert _bound(50, 10, 100, 0.99, 0.01) == 0.0


def test_unbiased_and_as_noisy_as_stated_inside_the_ball() -> None:
    """Lengths between 0 and the clip bound, where the flip matters (z tests, error rate below 1e-4 together)."""
    n = 40_000
    for mechanism in (L2Ball(epsilon=1.0, clip=2.0, dim=3), PrivUnit(epsilon=3.0, clip=2.0, dim=3)):
        for length in (0.2, 1.0, 1.9):
            g = length * np.array([0.6, -0.8, 0.0])
            values = mechanism.decode_many(mechanism.privatize_many(np.tile(g, (n, 1)), UnsafeSeed(8)))
            assert np.abs((values.mean(axis=0) - g) / (values.std(axis=0) / math.sqrt(n))).max() < 4.9
            errors = ((values - g) ** 2).sum(axis=1)
            assert abs(errors.mean() - mechanism.squared_error(length)) < 4.9 * errors.std() / math.sqrt(n)


def test_reports_of_scores_that_are_not_finite_reveal_nothing() -> None:
    """A vector that is not finite counts as 0: the kernel's last line of defence."""
    bad = np.array([[np.nan, 1.0], [np.inf, 1.0], [1.0, -np.inf], [0.0, 0.0]])
    for mechanism in (L2Ball(epsilon=1.0, clip=1.0, dim=2), PrivUnit(epsilon=4.0, clip=1.0, dim=2),
                      Gaussian(epsilon=1.0, delta=1e-3, clip=1.0, dim=2)):  # fmt: skip
        words = np.tile(UnsafeSeed(3).words(mechanism.words), (4, 1))
        rows = mechanism.report_rows(bad.copy(), words)
        assert (rows == rows[3]).all()


def test_audit_refuses_reports_that_cannot_be() -> None:
    class Impossible(L2Ball):
        def report_rows(self, g: Any, words: Any) -> Any:
            rows = super().report_rows(g, words)
            rows[:, 1] = 2**40
            return rows

    with pytest.raises(InvalidInput, match="cannot come from"):
        privacy.audit(Impossible(epsilon=1.0, clip=1.0, dim=2), samples=1000)


def test_ledger_does_not_undercharge_after_any_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failure of any write, the ledger still works and includes every granted report."""
    mechanism = RandomizedResponse(epsilon=0.1)
    for k, name in enumerate(("fsync", "replace", "open")):
        file = tmp_path / f"{k}.json"
        ledger, granted = Ledger(epsilon=2.0, path=file), 0
        for skip in range(8):
            calls, real = [0], getattr(os, name)

            def failing(
                *args: Any, calls: list[int] = calls, real: Any = real, skip: int = skip, **options: Any
            ) -> Any:
                calls[0] += 1
                if calls[0] == skip + 1:
                    raise OSError(5, "input/output error")
                return real(*args, **options)

            with monkeypatch.context() as patch:
                patch.setattr(os, name, failing)
                with contextlib.suppress(LedgerError):
                    ledger.spend(mechanism)
                    granted += 1
        again = Ledger(epsilon=2.0, path=file)
        assert again.reports >= granted > 0
        again.spend(mechanism)


def test_low_bits() -> None:
    assert low_bits(np.array([8, -6, 1, 0])).tolist() == [3.0, 1.0, 0.0, 64.0]
    assert low_bits(np.array([0.5, -3.0, 2.0**-30 + 1.0, 0.0])).tolist() == [-1.0, 0.0, -30.0, 2000.0]


def test_the_largest_and_smallest_vectors_are_clipped_like_any_other() -> None:
    for g, length in ((np.array([3e200, 4e200]), 5e200), (np.array([3e-200, 4e-200]), 5e-200), (np.zeros(3), 0.0)):
        largest, root = kernel.size(g)
        assert largest * root == pytest.approx(length)
    mechanism = Gaussian(epsilon=8.0, delta=1e-3, clip=1.0, dim=3)
    ordinary, huge = (mechanism.privatize(s * np.ones(3), UnsafeSeed(1)) for s in (2.0, 1.7e308))
    assert ordinary == huge
