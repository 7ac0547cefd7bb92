"""The pages: what they are told (summary, curve, bands), and in a real browser that what they promise holds.

``python -m tests.service.test_pages docs`` makes the pictures of the documentation.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.stats import binom, chi2

from hushprice import policies
from hushprice.arrays import Array
from hushprice.cli.commands.live import live
from hushprice.errors import InvalidInput
from hushprice.policies import Phase, PrivatePolicy
from hushprice.privacy import UnsafeSeed
from hushprice.service import Definition, Event, OfferRequest
from hushprice.service.core.learner import Learner
from hushprice.service.core.offers import prepare
from hushprice.service.dashboard.bands import QUANTILE, Facts, spread
from hushprice.service.dashboard.curve import curve
from hushprice.service.dashboard.summary import summary
from hushprice.service.demo import shop as demo
from hushprice.service.settings import Settings
from tests.conftest import make_policy
from tests.support import bands as bench

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
browser_needed = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
LOYALTY, HURRY = 0.7341862, -0.2918374  # numbers that do not occur by chance

# -- bands --------------------------------------------------------------------------------------------------------


def test_bands_of_a_private_product_cover_the_truth() -> None:
    """A look whether anything is badly off: bands that hold 65 of 100 whole curves would hardly pass.

    That they hold about 95 is measured by ``python -m benchmarks bands``, with hundreds of runs of several products.
    """
    runs = 24
    held = bench.measure(bench.PRIVATE["coffee, d=3"], runs, first=0)
    assert binom.cdf(binom.ppf(0.005, runs, 0.95) - 1, runs, 0.65) > 0.85  # what the line above says
    assert held.whole() >= binom.ppf(0.005, runs, 0.95) / runs
    assert held.wide < 3.0  # not vacuous


@pytest.mark.parametrize("policy", ["etc", "greedy"])
def test_bands_of_a_plain_product_cover_the_truth(policy: str) -> None:
    """At least 93 of 100 whole curves, up to chance, also where prices follow what was learned (greedy)."""
    runs = 400
    held = bench.measure(bench.PLAIN[policy], runs, first=0)
    assert held.whole() >= binom.ppf(0.01, runs, 0.93) / runs
    assert held.wide < 3.0
    assert held.whole(QUANTILE) < 0.93  # 1.96 standard errors are for one price, not for the curve


def test_a_curve_within_its_band_at_every_price_is_what_is_drawn() -> None:
    """The band of the page is that of the whole curve."""
    learner = _sold("tea", _plain("etc", horizon=10**6), 300)
    facts, z = Facts.of(learner), np.array([1.0, 0.25])
    drawn, covariance = curve(facts, z.tolist()), spread(facts).covariance
    assert covariance is not None
    for p, middle, high in zip(drawn["prices"], drawn["demand"], drawn["demand_high"], strict=True):
        x = np.r_[z, -p * z]
        width = math.log(high / (1.0 - high)) - math.log(middle / (1.0 - middle))
        assert width == pytest.approx(math.sqrt(chi2.ppf(0.95, 2)) * math.sqrt(x @ covariance @ x), rel=1e-3)


# -- summary and curve --------------------------------------------------------------------------------------------


def _plain(policy: str, **options: Any) -> dict[str, Any]:
    return {**demo.TEA, "policy": policy, **options}


def _sold(
    name: str, definition: dict[str, Any], customers: int, *, seed: int = 0, theta: Array | None = None
) -> Learner:
    """A learner after so many customers of the demo's demand, one every 50 milliseconds."""
    learner = Learner(Definition.of(name, definition))
    _more(learner, customers, seed=seed, theta=demo.TRUTH[name] if theta is None else theta)
    return learner


def _more(learner: Learner, customers: int, *, seed: int, theta: Array) -> None:
    """So many more customers."""
    policy, rng, first = learner.policy, np.random.default_rng(seed), learner.seq
    d, device = policy.dim, policy.device(UnsafeSeed(seed)) if policy.private else None

    def buys(z: Array, price: float) -> float:
        return float(rng.random() < 1.0 / (1.0 + math.exp(price * (z @ theta[d:]) - z @ theta[:d])))

    for k in range(first, first + customers):
        z, at = np.array([1.0, *rng.uniform(-1.0, 1.0, d - 1)]), 1e9 + 0.05 * k
        if device is None:
            asked = prepare(learner.definition, OfferRequest(context=z.tolist(), id=f"o{k}"))
            body = learner.quote(asked, rng)
            learner.apply([Event(learner.seq + 1, at, "offer", f"o:o{k}", body)])
            learner.apply([Event(learner.seq + 1, at, "outcome", f"y:o{k}", {"y": buys(z, body["price"])})])
            continue
        params, report = learner.params, None
        fixed = params.phase is Phase.FIXED  # shadow mode
        price = np.array([params.level]) if fixed else device.quote(params, z[None, :], rng).price
        y = np.array([buys(z, price[0])])
        if params.learn:
            sent: Any = device.report(params, z[None, :], price, y, params.stage)
            assert isinstance(policy, PrivatePolicy)
            report = policy.mechanism.reports(sent.rows)[0].to_dict()
        body = {"version": learner.version, "report": report}
        learner.apply([Event(learner.seq + 1, at, "report", f"r:{k:032x}", body)])


SERVED = [name for name in policies.REGISTRY if "mixed" not in name]


@pytest.mark.parametrize("name", SERVED)
def test_every_policy_can_be_shown(name: str) -> None:
    """Before the first customer and after some, as JSON without NaN; curves stay within their bands."""
    config = {key: value for key, value in make_policy(name, dim=2).config().items() if key != "rules"}
    features = [feature.config() for feature in bench.APART]
    plain = {**config, "policy": name, "features": features, "baseline": 1.5}
    product = "coffee" if policies.get(name).private else "tea"
    theta = np.array([2.6, 0.9, 1.0, -0.25]) if product == "coffee" else demo.TRUTH["tea"]
    for customers in (0, 150):
        learner = _sold(product, plain, customers, theta=theta)
        before = learner.digest()
        summarised, drawn = summary(learner), curve(Facts.of(learner), [1.0, 0.3])
        assert learner.digest() == before
        json.dumps([summarised, drawn], allow_nan=False)
        assert summarised["counts"]["customers"] == customers
        assert customers > 0 or not drawn["learned"]
        assert len(drawn["prices"]) == len(drawn["demand"]) == len(drawn["revenue"])
        if drawn["bands"]["level"] is not None:
            low, middle, high = (np.array(drawn[key]) for key in ("demand_low", "demand", "demand_high"))
            assert ((low <= middle) & (middle <= high)).all()


def test_curve_is_the_model_and_its_best_price_the_best_allowed_one() -> None:
    learner = _sold("tea", _plain("etc", horizon=10**6), 400)
    drawn, (theta, _) = curve(Facts.of(learner), [1.0, 0.25]), learner.server.estimate()
    a, b = theta[0] + 0.25 * theta[1], theta[2] + 0.25 * theta[3]
    prices = np.array(drawn["prices"])
    np.testing.assert_allclose(drawn["demand"], 1.0 / (1.0 + np.exp(b * prices - a)), rtol=1e-5)
    np.testing.assert_allclose(drawn["revenue"], prices * np.array(drawn["demand"]), rtol=1e-4)
    fine = np.linspace(0.5, 4.0, 20_001)
    best = fine[np.argmax(fine / (1.0 + np.exp(b * fine - a)))]
    assert abs(drawn["best"]["price"] - best) < 1e-3
    assert drawn["best"]["price_low"] <= drawn["best"]["price"] <= drawn["best"]["price_high"]
    rails = {"low": None, "high": best - 0.3, "ladder": [], "largest_step": None, "by": "me"}
    learner.apply([Event(learner.seq + 1, 1e9 + 99.0, "guardrails", "a:1", rails)])
    assert curve(Facts.of(learner), [1.0, 0.25])["best"]["price"] == pytest.approx(best - 0.3)
    for wrong in ([1.0], [1.0, math.nan], [1.0, "x"]):
        with pytest.raises(InvalidInput):
            curve(Facts.of(learner), wrong)  # type: ignore[arg-type]


def test_bands_are_left_out_where_they_would_be_wrong() -> None:
    coffee = _sold("coffee", demo.COFFEE, 60)
    assert "at least 150 reports" in spread(Facts.of(coffee)).words
    assert "demand_low" not in curve(Facts.of(coffee), [1.0, 0.0, 0.0])
    nameless = _sold("coffee", {**demo.COFFEE, "features": []}, 700)
    assert "does not state them" in spread(Facts.of(nameless)).words
    assert "outcomes" in spread(Facts.of(_sold("tea", demo.TEA, 20))).words


EXPLORING = {**demo.COFFEE, "policy": "etc-ldp", "horizon": 10**13}  # coffee that is still being explored


def _apart(learner: Learner, kind: Any, body: dict[str, Any]) -> None:
    learner.apply([Event(learner.seq + 1, 2e9, kind, f"a:{learner.seq}", {**body, "by": "me"})])


def test_no_bands_from_reports_in_shadow_mode_whenever_they_were_made() -> None:
    """Reports at one price say nothing of others: at most a tenth of those that SGD took in may be of them."""
    learner, theta = _sold("coffee", {**EXPLORING, "mode": "shadow"}, 200), demo.TRUTH["coffee"]
    assert "shadow" in spread(Facts.of(learner)).words
    _apart(learner, "mode", {"mode": "live"})
    _more(learner, 400, seed=1, theta=theta)
    facts = Facts.of(learner)
    assert facts.steps is not None
    assert 0.6 * facts.steps < facts.explored < 0.9 * facts.steps
    assert "shadow" in spread(facts).words
    clean = _sold("coffee", EXPLORING, 300)
    _apart(clean, "mode", {"mode": "shadow"})
    assert spread(Facts.of(clean)).covariance is not None  # nothing was learned in shadow mode yet
    _more(clean, 50, seed=1, theta=theta)
    assert "shadow" in spread(Facts.of(clean)).words


def test_no_bands_until_most_reports_are_from_the_guardrails_of_today() -> None:
    learner = _sold("coffee", EXPLORING, 250)
    assert spread(Facts.of(learner)).covariance is not None
    _apart(learner, "guardrails", {"low": 2.0, "high": 3.0, "ladder": None, "largest_step": None})
    assert "other guardrails" in spread(Facts.of(learner)).words
    _more(learner, 150, seed=1, theta=demo.TRUTH["coffee"])
    assert "other guardrails" in spread(Facts.of(learner)).words
    _more(learner, 150, seed=2, theta=demo.TRUTH["coffee"])
    assert spread(Facts.of(learner)).covariance is not None


@pytest.mark.parametrize("ladder", [[], [2.1, 2.6, 3.9]])
def test_the_baseline_is_shown_as_it_is_quoted_under_guardrails(ladder: list[float]) -> None:
    learner = _sold("tea", _plain("etc", horizon=10**6), 300)
    _apart(learner, "guardrails", {"low": 2.0, "high": 3.0, "ladder": ladder, "largest_step": None})
    shown = summary(learner)
    _apart(learner, "mode", {"mode": "shadow"})
    asked = prepare(learner.definition, OfferRequest(context=[1.0, 0.3], id="x"))
    quoted = learner.quote(asked, np.random.default_rng(1))["price"]
    assert quoted == (2.6 if ladder else 3.0)
    assert shown["baseline"] == curve(Facts.of(learner), [1.0, 0.3])["baseline"]["price"] == quoted
    z = np.array([sale.z for sale in learner.statistics.recent])
    theta = Facts.of(learner).theta
    expected = np.mean(quoted / (1.0 + np.exp(quoted * (z @ theta[2:]) - z @ theta[:2])))
    assert shown["earned"]["baseline"]["mean"] == pytest.approx(expected)
    assert "rough" in shown["earned"]["words"]


def test_what_was_earned_is_weighed_against_the_baseline() -> None:
    learner = _sold("tea", _plain("etc-doubling"), 1_500)
    earned = summary(learner)["earned"]
    assert earned["n"] == 1_000
    closed = list(learner.statistics.recent)
    assert earned["mean"] == pytest.approx(np.mean([sale.price * sale.y for sale in closed]))
    z = np.array([sale.z for sale in closed])
    truth = np.mean(3.4 / (1.0 + np.exp(3.4 * (z @ demo.TRUTH["tea"][2:]) - z @ demo.TRUTH["tea"][:2])))
    assert earned["baseline"]["low"] <= truth <= earned["baseline"]["high"]
    assert earned["more"]["mean"] == pytest.approx(earned["mean"] - earned["baseline"]["mean"])
    assert summary(_sold("coffee", demo.COFFEE, 100))["earned"] is None


# -- the live demo ------------------------------------------------------------------------------------------------


def test_live_demo_stops_by_itself(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    database = tmp_path / "kept.db"
    live(database=f"sqlite:///{database}", port=0, rate=120.0, seconds=1.5, seed=1)
    said = capsys.readouterr().out
    assert "/#key=hp_admin_" in said
    assert database.exists()
    assert int(said.partition("Stopped after ")[2].split()[0]) > 20


def test_live_demo_ends_cleanly_by_a_signal(tmp_path: Path) -> None:
    """Exit code 0, nothing on standard error, no file left."""
    command = [sys.executable, "-c", "from hushprice.cli.commands.live import live; live(port=0, rate=30.0)"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("Stop"):
            assert process.poll() is None
        assert list(tmp_path.glob("hushprice-demo-*"))
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30.0)
    assert (process.returncode, err) == (0, "")
    assert "Nothing is kept." in out
    assert not list(tmp_path.iterdir())


# -- in a browser -------------------------------------------------------------------------------------------------


class Site:
    """The service with the demo's products, and a browser."""

    def __init__(self, url: str, keys: dict[Any, str], browser: Browser, database: Path) -> None:
        self.url, self.keys, self.browser, self.database = url, keys, browser, database
        self.troubles: list[str] = []

    def page(self, width: int = 1400, height: int = 1000, **options: Any) -> Page:
        """A new tab, whose complaints are kept."""
        page = self.browser.new_context(viewport={"width": width, "height": height}, **options).new_page()
        page.on("console", lambda said: self.troubles.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda problem: self.troubles.append(str(problem)))
        return page

    def dashboard(self, page: Page, product: str = "coffee", role: str = "admin") -> None:
        """Open the dashboard at a product."""
        page.goto(f"{self.url}/?product={product}#key={self.keys[role]}")
        page.wait_for_selector("#board:not([hidden])")
        _until(page, f"document.getElementById('name').textContent === '{product}'")


@contextmanager
def _site(folder: Path) -> Iterator[Site]:
    from playwright.sync_api import sync_playwright

    secrets, known = demo.keys()
    database = folder / "site.db"
    settings = Settings(database=f"sqlite:///{database}", keys=known, log_format="none").with_shop()
    with (
        demo.running(settings, demo.definitions()) as url,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]) as browser,
    ):
        yield Site(url, dict(secrets), browser, database)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with _site(tmp_path) as site:
        yield site
        assert site.troubles == []


def _until(page: Page, condition: str, seconds: float = 20.0) -> None:
    """Wait for a condition in JavaScript. (Playwright's own way is an eval, which the pages' policy forbids.)"""
    deadline = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(30)


def _drag(page: Page, name: str, value: float) -> None:
    """Move a slider of the shop to a value."""
    script = "(node, value) => { node.value = value; node.dispatchEvent(new Event('input')); }"
    page.locator(f"#sliders input[name={name}]").evaluate(script, value)


def _tile(page: Page, name: str) -> int:
    """The number on a tile of the dashboard."""
    tile = page.locator("#totals div", has=page.locator("dt", has_text=name)).first.locator("dd")
    return int(tile.evaluate("node => node.firstChild.textContent").replace(",", ""))


def _forms(value: float) -> list[str]:
    """How a number could be written down: its digits, however rounded, and the bytes of a double.

    Not of a price at an end of the range, as 5.0 is: such digits are in every request, as in Mozilla/5.0.
    """
    digits = repr(abs(value))
    if len(digits) < 8:
        return []
    packed = [struct.pack(order, value).hex() for order in ("<d", ">d")]
    return [digits[:6], f"{abs(value):.4f}", digits.replace(".", "").lstrip("0")[:10], *packed]


def _written(request: Request) -> str:
    headers = "\n".join(f"{name}: {value}" for name, value in request.all_headers().items())
    return f"{request.method} {request.url}\n{headers}\n\n{request.post_data or ''}"


@browser_needed
def test_fifty_sales_in_private_mode_and_nothing_about_the_customer_leaves(site: Site) -> None:
    """The network log of the shop holds no feature, no price, no outcome; the dashboard sees the reports arrive."""
    board = site.page()
    site.dashboard(board)
    assert _tile(board, "Customers") == 0
    assert board.locator("#demand path.line").count() == 0
    shop = site.page()
    requests: list[Request] = []
    shop.context.on("request", lambda request: requests.append(request))
    shop.goto(f"{site.url}/shop?product=coffee")
    shop.wait_for_selector("#buy:not([disabled])")
    for name, value in (("loyalty", LOYALTY), ("hurry", HURRY)):
        _drag(shop, name, value)
        assert float(shop.locator(f"#sliders input[name={name}]").input_value()) == value
    prices, seen, bought = [], [], 0
    for k in range(56):
        prices.append(float(shop.get_attribute("#price", "title") or "nan"))
        shop.click("#pass" if k % 10 == 3 else "#buy")  # 50 buy, and 6 do not
        bought += k % 10 != 3
        _until(shop, f"document.querySelectorAll('#done li:not(.soft)').length >= {min(k + 1, 8)}")
        shop.wait_for_selector("#buy:not([disabled])")
        if k == 24:
            _until(board, "document.querySelector('#totals dd')?.firstChild.textContent !== '0'")
            seen.append(_tile(board, "Customers"))
    assert bought == 50
    _until(board, "document.querySelector('#totals dd')?.firstChild.textContent === '56'")
    seen.append(_tile(board, "Customers"))
    assert 0 < seen[0] < seen[1] == 56
    assert _tile(board, "Learned from") > 10
    board.wait_for_selector("#demand path.line")
    board.wait_for_selector("#revenue path.line")

    written = [_written(request) for request in requests]
    assert sum(map(bool, map(_forms, prices))) > 40
    secret = [*_forms(LOYALTY), *_forms(HURRY), *(form for price in prices for form in _forms(price))]
    assert any(form in f"GET /x?z={LOYALTY}" for form in _forms(LOYALTY))  # the search finds what is there
    for text in written:
        assert not [form for form in secret if form in text]
    posts = [request for request in requests if request.method == "POST"]
    bodies = [json.loads(request.post_data or "") for request in posts]
    items = [item for body in bodies for item in body.get("reports", [body])]
    assert len(items) == len({item["id"] for item in items}) == 56
    for item in items:
        assert set(item) == {"id", "version", "report"}
        assert item["report"] is None or set(item["report"]) == {"seed", "index"}
    stored = b"".join(path.read_bytes() for path in site.database.parent.glob("site.db*"))
    assert posts[0].url.endswith("/v1/products/coffee/reports")
    assert items[0]["id"].encode() in stored  # the search finds what is there
    assert not [form for form in secret if form.encode() in stored]


@browser_needed
def test_the_shop_shows_the_very_bytes_and_refuses_a_greedy_server(site: Site) -> None:
    shop = site.page(390, 844)
    bodies: list[str] = []
    shop.on("request", lambda request: bodies.append(request.post_data or "") if request.method == "POST" else None)
    shop.goto(f"{site.url}/shop")
    shop.wait_for_selector("#buy:not([disabled])")
    before = shop.get_attribute("#price", "title")
    assert "experiment" in (shop.text_content("#price-words") or "").lower()
    _drag(shop, "loyalty", 0.9)
    _until(shop, "document.querySelector('#stays dd').textContent === '0.9'")
    assert shop.get_attribute("#price", "title") == before  # one throw of the dice a visit
    shop.click("#buy")
    shop.wait_for_selector("#wire .body")
    assert shop.locator("#wire .body").first.text_content() == bodies[0]
    assert "hp_device_\u2022" in (shop.text_content("#wire") or "")
    secret = shop.evaluate("fetch('/shop/config').then((answer) => answer.json())")["key"]
    assert secret not in shop.content()
    _until(shop, "document.getElementById('budget').value > 0")
    assert shop.evaluate("document.getElementById('budget').value") == pytest.approx(4.0)
    shop.click("#greedy")
    _until(shop, "document.getElementById('refused').textContent.includes('No price and no report')")
    shop.click("#another")
    _until(shop, "document.getElementById('budget').value === 0")
    assert "tea" in (shop.text_content("#plain-note") or "")


@browser_needed
def test_an_admin_controls_a_product_and_a_seller_looks(site: Site) -> None:
    page = site.page()
    site.dashboard(page)
    assert page.url == f"{site.url}/?product=coffee"  # the key is out of the address
    page.click("#modes button[data-mode=shadow]")
    _until(page, "document.getElementById('mode').textContent === 'shadow'")
    page.fill("#rails [name=low]", "2")
    page.fill("#rails [name=high]", "4.5")
    page.click("#rails button")
    _until(page, "document.getElementById('events').textContent.includes('€4.50')")
    page.fill("#rails [name=high]", "9")
    page.click("#rails button")
    _until(page, "document.getElementById('control-answer').textContent.includes('must lie within')")
    page.click("#modes button[data-mode=live]")
    _until(page, "document.getElementById('mode').textContent === 'live'")
    page.fill("#back [name=exact]", "0")
    page.click("#back button")
    page.click("#sure button[value=no]")
    page.click("#back button")
    page.click("#sure-yes")
    _until(page, "document.getElementById('events').textContent.includes('rolled back to version 0')")
    _until(page, "document.querySelectorAll('#events li').length === 4")
    site.troubles[:] = [text for text in site.troubles if "422" not in text]  # the refusal above, as Chromium notes it
    looker = site.page()
    site.dashboard(looker, "tea", "seller")
    assert looker.locator("#modes button").first.is_disabled()
    assert "admin key" in (looker.text_content("#control-note") or "")


@browser_needed
def test_the_dashboard_asks_for_a_key_says_when_it_is_cut_off_and_rests_when_hidden(site: Site) -> None:
    page = site.page()
    page.goto(site.url)
    page.wait_for_selector("#enter:not([hidden])")
    page.fill("#key", "hp_admin_wrong")
    page.click("#enter button")
    _until(page, "document.getElementById('enter-problem').textContent.includes('does not know')")
    page.fill("#key", site.keys["admin"])
    page.click("#enter button")
    page.wait_for_selector("#board:not([hidden])")
    page.context.set_offline(True)
    _until(page, "document.getElementById('lost').textContent.includes('Connection lost, trying again')")
    page.context.set_offline(False)
    page.wait_for_selector("#lost", state="hidden", timeout=10_000)
    site.troubles[:] = [text for text in site.troubles if "401" not in text and "ERR_INTERNET_DISCONNECTED" not in text]
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate(
        "Object.defineProperty(document, 'hidden', { get: () => true, configurable: true });"
        "document.dispatchEvent(new Event('visibilitychange'));"
    )
    asked.clear()
    page.wait_for_timeout(2_500)
    assert asked == []
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'));")
    page.wait_for_timeout(500)
    assert asked


@browser_needed
def test_pages_fit_phones_and_charts_can_be_read_by_keys_and_as_tables(site: Site) -> None:
    crowd = demo.Crowd(site.url, device_key=site.keys["device"], seller_key=site.keys["seller"], rate=150.0, seed=1)
    crowd.start()
    page = site.page(390, 844, color_scheme="dark")
    try:
        site.dashboard(page, "tea")
        page.wait_for_selector("#demand path.line", timeout=20_000)
    finally:
        crowd.stop()
    for width in (360, 390, 768, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(150)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.focus("#demand svg")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "%" in (page.text_content("#demand .chart-bubble") or "")
    page.click("#demand summary")
    _until(page, "document.querySelectorAll('#demand table tbody tr').length > 5")
    page.hover("#prices svg")
    assert page.locator("#prices .chart-bubble").is_visible()


# -- pictures -----------------------------------------------------------------------------------------------------


def screenshots(folder: Path, *, seconds: float = 60.0, rate: float = 60.0) -> list[Path]:
    """Pictures of both pages on a desktop and on a phone, after so many seconds with simulated customers."""
    import tempfile

    made: list[Path] = []
    with tempfile.TemporaryDirectory() as scratch, _site(Path(scratch)) as site:
        keys = {f"{role}_key": site.keys[role] for role in ("device", "seller")}
        crowd = demo.Crowd(site.url, **keys, rate=rate, seed=1)
        crowd.start()
        try:
            time.sleep(seconds)
            for name, width, height in (("", 1400, 1300), ("-phone", 390, 1500)):
                page = site.page(width, height)
                site.dashboard(page)
                page.wait_for_selector("#demand svg")
                page.wait_for_timeout(1_000)
                made.append(folder / f"dashboard{name}.png")
                page.screenshot(path=made[-1])
                page.goto(f"{site.url}/shop")
                page.wait_for_selector("#buy:not([disabled])")
                for slider, value in (("loyalty", 0.62), ("hurry", -0.35)):
                    _drag(page, slider, value)
                for _ in range(3):
                    page.wait_for_selector("#buy:not([disabled])")
                    page.click("#buy")
                    page.wait_for_timeout(500)
                page.evaluate("scrollTo(0, 0)")
                made.append(folder / f"shop{name}.png")
                page.screenshot(path=made[-1])
        finally:
            crowd.stop()
        assert site.troubles == []
    return made


@browser_needed
def test_pictures_are_small_enough_for_the_documentation(tmp_path: Path) -> None:
    for picture in screenshots(tmp_path, seconds=2.0, rate=100.0):
        assert 10_000 < picture.stat().st_size < 300_000


if __name__ == "__main__":
    print(*screenshots(Path(sys.argv[1])), sep="\n")
