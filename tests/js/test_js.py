"""The JavaScript device: its own tests, and thousands of random cases against the compiled kernels, to the last bit."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from protocol.device_vectors import device_vectors

from hushprice.demand import FAMILIES
from hushprice.errors import BudgetSpent
from hushprice.kernels import glm, philox, quote, special
from hushprice.kernels import state as phases
from hushprice.kernels.score import score
from hushprice.privacy import Gaussian, L2Ball, Ledger, PrivUnit
from hushprice.privacy.directions import fair_coin
from hushprice.privacy.mechanism import VectorMechanism
from hushprice.privacy.wire import Report
from hushprice.version import __version__
from tests.support.node import DEVICE, JS_TESTS, run_node

CODES = {name: family.code for name, family in FAMILIES.items()}
PHASES = {"explore": phases.EXPLORE, "exploit": phases.EXPLOIT, "fixed": phases.FIXED}
Case = tuple[Any, Any]  # a question and the kernels' answer


def to_plain(value: Any) -> Any:
    """Plain data with every float as its bits."""
    if isinstance(value, float):
        return f"f:{struct.pack('>d', value).hex()}"
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [to_plain(item) for item in (value.tolist() if isinstance(value, np.ndarray) else value)]
    return value


def from_bits(text: str) -> float:
    """The float of these bits."""
    (value,) = struct.unpack(">d", bytes.fromhex(text.removeprefix("f:")))
    return float(value)


def test_own_tests() -> None:
    files = sorted(JS_TESTS.glob("*.test.js"))
    assert len(files) >= 4
    text = run_node("--test", "--test-reporter=tap", *files)
    counts = dict(re.findall(r"^# (tests|pass|fail|skipped|todo) (\d+)$", text, re.MULTILINE))
    assert int(counts["pass"]) == int(counts["tests"]) >= 90
    assert counts["fail"] == counts["skipped"] == counts["todo"] == "0"


def test_package() -> None:
    package = json.loads((DEVICE / "package.json").read_text())
    assert package["name"] == "hushprice-device"
    assert package["type"] == "module"
    assert package["version"] == __version__
    assert "dependencies" not in package
    assert f'export const VERSION = "{__version__}";' in (DEVICE / "index.js").read_text()


def test_declarations_name_everything() -> None:
    """The declarations contain exactly the exports of the module, including methods."""
    exported = json.loads(run_node("tools/exports.mjs"))
    text = (DEVICE / "index.d.ts").read_text()
    names = re.findall(r"^export declare (?:const|class|function) (\w+)", text, re.MULTILINE)
    assert sorted(names) == sorted(exported)
    for name, members in exported.items():
        body = re.search(rf"^export declare class {name} [^\n]*{{\n(.*?)^}}", text, re.MULTILINE | re.DOTALL)
        declared = re.findall(r"^  (?:static |readonly )*(\w+)[(:]", body[1] if body else "", re.MULTILINE)
        methods = re.findall(r"^  (?:static )?(\w+)\(", body[1] if body else "", re.MULTILINE)
        assert {*methods} - {"constructor"} <= {*members} <= {*declared}, name


def test_modules_import_only_one_another() -> None:
    modules = {path.name for path in DEVICE.glob("*.js")}
    for name in modules:
        imports = re.findall(r'^(?:import|export) .*?from "(.*?)";|^} from "(.*?)";', (DEVICE / name).read_text(), re.M)
        assert {(a or b).removeprefix("./") for a, b in imports} <= modules


def test_no_inexact_function_computes_a_price_or_report() -> None:
    """Only those functions of Math that IEEE 754 or the language defines to the last bit."""
    exact = {"abs", "floor", "imul", "max", "min", "sqrt"}
    for path in DEVICE.glob("*.js"):
        text = path.read_text()
        assert set(re.findall(r"\bMath\.(\w+)", text)) <= exact, path.name
        assert "Math.random" not in text
        powers = [line for line in text.splitlines() if "**" in line and not re.search(r"10n \*\*|/\*\*|^ *\*", line)]
        assert not powers, powers


# -- random cases ---------------------------------------------------------------------------------------------------


def pick(rng: np.random.Generator, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def wild(rng: np.random.Generator, size: int) -> list[float]:
    """Numbers of all sizes, with the ends of the doubles among them."""
    ends = [0.0, -0.0, 1.0, -1.0, 5e-324, -5e-324, 1e308, -1e308, math.inf, -math.inf, math.nan]
    spread = rng.choice((-1.0, 1.0), size) * 10.0 ** rng.uniform(-20.0, 20.0, size)
    return [*ends, *rng.uniform(-720.0, 720.0, size).tolist(), *rng.normal(0.0, 4.0, size).tolist(), *spread.tolist()]


def means(rng: np.random.Generator) -> list[Case]:
    etas = wild(rng, 700)
    with np.errstate(all="ignore"):  # as in Family: the square of 1e308, and NaN
        return [((name, x), float(glm.mean_ufunc(code, x))) for name, code in CODES.items() for x in etas]


def omegas(rng: np.random.Generator) -> list[Case]:
    near = np.concatenate([rng.uniform(-8.0, 24.0, 3200), np.arange(-8.0, 24.0, 1.0 / 64.0), [24.0, -1.0, 1.0]])
    far = np.array([*rng.uniform(-760.0, -8.0, 300), *rng.uniform(24.0, 1e3, 300), *10.0 ** rng.uniform(2, 140, 300)])
    cases = []
    for x in (near, far):
        values = x.copy()
        special.omegas(values)
        cases += [((float(a),), float(b)) for a, b in zip(x, values, strict=True)]
    return cases


def quantiles(rng: np.random.Generator) -> list[Case]:
    edges = [0.5, 0.075, 0.925, 2.0**-54, 2.0**-53, 1e-12, 1e-300, 0.5 - 2.0**-54, 0.4999999]
    u = [*edges, *rng.uniform(0.0, 1.0, 2000).tolist(), *(10.0 ** rng.uniform(-16.0, -1.0, 1000)).tolist()]
    return [((x,), float(special.normal_quantile(x))) for x in u]


def directions(rng: np.random.Generator) -> list[Case]:
    cases = []
    for _ in range(300):
        seed, number, n = int(rng.integers(2**64, dtype=np.uint64)), int(rng.integers(2048)), int(rng.integers(1, 30))
        v = np.empty(n)
        philox.direction(np.uint64(seed), number, v, np.empty(n + 3, dtype=np.uint64))
        cases.append(((f"{seed:016x}", number, n), v.tolist()))
    return cases


def utilities(rng: np.random.Generator) -> tuple[float, float, float]:
    """(a, b, cost): mostly ordinary, sometimes far out, with b of either sign, tiny or 0."""
    a = float(pick(rng, (rng.normal(0.0, 3.0), rng.normal(0.0, 60.0), rng.normal(0.0, 1e4), 0.0)))
    b = float(pick(rng, (rng.uniform(0.0, 2.0), rng.normal(0.0, 1.0), 10.0 ** rng.uniform(-30.0, 3.0), 0.0, -0.0)))
    cost = float(pick(rng, (0.0, rng.uniform(0.0, 3.0), rng.uniform(3.0, 12.0), 10.0 ** rng.uniform(-3.0, 6.0))))
    return a, b, cost


def best_prices(rng: np.random.Generator) -> list[Case]:
    cases = []
    for name, code in CODES.items():
        for _ in range(2000):
            a, b, cost = utilities(rng)
            low = float(rng.uniform(0.0, 3.0))
            high = low + float(rng.uniform(0.0, 5.0))
            price = glm.best_price_ufunc(code, a, b, cost, low, high)
            cases.append(((name, a, b, cost, low, high), float(price)))
    return cases


def quotes(rng: np.random.Generator) -> list[Case]:
    cases = []
    for _ in range(4000):
        name, phase = pick(rng, list(CODES)), pick(rng, list(PHASES))
        a, b, cost = utilities(rng)
        ladder = np.unique(np.round(rng.uniform(0.0, 8.0, int(rng.integers(1, 12))), 1))
        low, high = np.sort(rng.choice(np.append(ladder, [0.0, 8.0]), 2)).tolist()
        if not ((ladder >= low) & (ladder <= high)).any() or rng.random() < 0.3:
            ladder = np.empty(0)
        level, u = float(rng.uniform(0.0, 9.0)), float(pick(rng, (rng.random(), 0.0, 1.0 - 2.0**-53)))
        price = quote.quote_on_terms(PHASES[phase], CODES[name], a, b, level, u, cost, low, high, ladder)
        cases.append(((phase, name, a, b, level, u, cost, low, high, ladder.tolist()), float(price)))
    return cases


def scores(rng: np.random.Generator) -> list[Case]:
    cases = []
    for _ in range(2000):
        name, d = pick(rng, list(CODES)), int(rng.integers(1, 13))
        size = float(pick(rng, (1.0, 1.0, 100.0, 1e12)))
        theta, z = rng.normal(0.0, 1.0, 2 * d), size * rng.normal(0.0, 1.0, d)
        price, y = float(rng.uniform(0.0, 5.0)), float(pick(rng, (0.0, 1.0, 3.0, rng.normal(), 1e200)))
        shift, factor = pick(rng, ((0.0, 1.0), (2.5, 0.8660254037844386), (1.2, 17.0)))
        g = np.empty(2 * d)
        score(CODES[name], theta, z, price, y, shift, factor, g)
        cases.append(((name, theta.tolist(), z.tolist(), price, y, shift, factor), g.tolist()))
    return cases


def mechanisms(rng: np.random.Generator) -> list[VectorMechanism]:
    caps = [PrivUnit(epsilon=e, clip=c, dim=n) for e, c, n in ((1.0, 2.0, 2), (4.0, 0.3, 12), (6.0, 5.0, 24))]
    odd = [PrivUnit(epsilon=float(rng.uniform(0.1, 8.0)), clip=1.0, dim=6, pairs=j) for j in (1, 2, 3, 17, 1024)]
    noise = [Gaussian(epsilon=e, delta=d, clip=c, dim=n) for e, d, c, n in ((1.0, 1e-3, 2.0, 6), (5.0, 1e-6, 40.0, 3))]
    return [*(L2Ball(epsilon=e, clip=2.0, dim=n) for e, n in ((0.1, 1), (1.0, 4), (9.0, 50))), *caps, *odd, *noise]


def reports(rng: np.random.Generator) -> list[Case]:
    cases = []
    for mechanism in mechanisms(rng):
        pairs, top = getattr(mechanism, "shape", (1, 1))
        coin, sd = getattr(mechanism, "coin", 0), float(getattr(mechanism, "sd", 0.0))
        plain = {"name": mechanism.name, "clip": mechanism.clip, "pairs": pairs, "top": top, "sd": sd}
        plain["coin"] = f"{coin:016x}"
        for i in range(12 if pairs == 1024 else 150):
            g = rng.normal(0.0, 1.0, mechanism.dim) * float(pick(rng, (0.0, 1e-300, 1e-3, 0.3, 1.0, 5.0, 1e300)))
            if i % 10 == 9:
                g[0] = pick(rng, (math.inf, -math.inf, math.nan, -0.0))
            words = rng.integers(2**64, size=mechanism.words, dtype=np.uint64)
            row = mechanism.report_rows(g[None].copy(), words[None])[0]
            question = {"mechanism": plain, "g": g.tolist(), "words": [f"{int(w):016x}" for w in words]}
            cases.append((question, Report(mechanism.kind, tuple(row.tolist())).to_dict()))
    return cases


def coins(rng: np.random.Generator) -> list[Case]:
    cases = []
    for _ in range(500):
        epsilon = float(pick(rng, (rng.uniform(0.0, 30.0), 10.0 ** rng.uniform(-6.0, 1.0), 1e-6, 30.0)))
        pairs = int(rng.integers(1, 1025))
        top = int(rng.integers(1, pairs + 1))
        coin = fair_coin(epsilon, inside=top, outside=2 * pairs - top)
        cases.append(((epsilon, top, 2 * pairs - top), f"{coin:016x}"))
    return cases


def sessions(rng: np.random.Generator) -> list[Case]:
    """The test vectors' sessions: what a document says goes all the way to a price and a report."""
    cases = []
    for session in device_vectors()["sessions"]:
        answers = [{"price": to_plain(c["price"]), "report": c["report"]} for c in session["customers"]]
        cases.append((session, answers))
    return cases


def curves(rng: np.random.Generator) -> list[Case]:
    """The exact delta of Gaussian noise, to forty digits."""
    cases = []
    with mpmath.workdps(60):
        for _ in range(300):
            epsilon, mu = float(10.0 ** rng.uniform(-6.0, 1.5)), float(10.0 ** rng.uniform(-2.0, 1.3))
            e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
            first = mpmath.ncdf(m / 2 - e / m)
            cases.append(((epsilon, mu), (first - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m), first)))
    return cases


def noise_levels(rng: np.random.Generator) -> list[Case]:
    """Noise as an honest server derives it, and a millionth less."""
    cases = []
    for _ in range(150):
        epsilon, delta = float(10.0 ** rng.uniform(-3.0, 0.9)), float(10.0 ** rng.uniform(-6.0, -1.0))
        clip, dim = float(10.0 ** rng.uniform(-2.0, 3.0)), int(rng.integers(1, 30))
        sd = Gaussian(epsilon=epsilon, delta=delta, clip=clip, dim=dim).sd
        for factor in (1.0, 1.0 - 1e-6):
            question = {"epsilon": epsilon, "delta": delta, "clip": clip, "dim": dim, "sd": factor * sd}
            cases.append((question, factor == 1.0))
    return cases


def budgets(rng: np.random.Generator) -> list[Case]:
    """How many reports a ledger allows: as many as the one in Python."""
    noise = Gaussian(epsilon=0.5, delta=1e-4, clip=2.0, dim=6)
    ball = L2Ball(epsilon=0.25, clip=2.0, dim=6)
    cases = []
    for used in ((ball,), (noise,), (ball, noise), (noise, noise, ball)):
        for epsilon, delta in ((1.0, 1e-3), (3.0, 1e-4), (6.0, 1e-2), (0.9, 0.0)):
            plain = [{"name": m.name, "epsilon": m.epsilon, "clip": m.clip, "dim": m.dim,
                      "sd": float(getattr(m, "sd", 0.0))} for m in used]  # fmt: skip
            question = {"epsilon": epsilon, "delta": delta, "mechanisms": plain}
            cases.append((question, _allowed(Ledger(epsilon=epsilon, delta=delta), used)))
    return cases


def _allowed(ledger: Ledger, used: tuple[VectorMechanism, ...]) -> int:
    n = 0
    while True:
        try:
            ledger.spend(used[n % len(used)])
        except BudgetSpent:
            return n
        n += 1


MAKERS: dict[str, Callable[[np.random.Generator], list[Case]]] = {
    "mean": means, "omega": omegas, "quantile": quantiles, "direction": directions, "best_price": best_prices,
    "quote": quotes, "score": scores, "report": reports, "coin": coins, "session": sessions, "delta": curves,
    "keeps": noise_levels, "ledger": budgets,
}  # fmt: skip


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[Case], list[Any]]]:
    """All cases, with the answers of one run of the JavaScript device."""
    rng = np.random.default_rng(20261116)
    cases = {name: make(rng) for name, make in MAKERS.items()}
    file = tmp_path_factory.mktemp("js") / "questions.json"
    file.write_text(json.dumps({name: to_plain([q for q, _ in some]) for name, some in cases.items()}))
    answers = json.loads(run_node("tools/answers.mjs", file))
    return {name: (some, answers[name]) for name, some in cases.items()}


@pytest.mark.parametrize(("name", "least"), [
    ("mean", 6000), ("omega", 6000), ("quantile", 3000), ("direction", 300), ("best_price", 6000), ("quote", 4000),
    ("score", 2000), ("report", 1500), ("coin", 500), ("session", 50), ("keeps", 300), ("ledger", 16),
])  # fmt: skip
def test_same_bits(asked: dict[str, tuple[list[Case], list[Any]]], name: str, least: int) -> None:
    cases, answers = asked[name]
    assert len(cases) == len(answers) >= least
    for (question, wanted), answer in zip(cases, answers, strict=True):
        assert _same(answer, wanted), (question, wanted, answer)


def _same(answer: Any, wanted: Any) -> bool:
    """Equal to the last bit, but for the bits of a NaN."""
    if isinstance(wanted, float) and math.isnan(wanted):
        return math.isnan(from_bits(answer))
    return bool(answer == to_plain(wanted))


def test_gaussian_curve(asked: dict[str, tuple[list[Case], list[Any]]]) -> None:
    """Never below the exact delta, and above it by no more than the stated allowance for rounding, twice over."""
    cases, answers = asked["delta"]
    for (question, (exact, first)), answer in zip(cases, answers, strict=True):
        over = mpmath.mpf(from_bits(answer)) - exact
        allowance = 5e-14 * first * (1 - mpmath.log(first)) + mpmath.mpf(1e-300)
        assert 0 <= over <= 2 * allowance, question
