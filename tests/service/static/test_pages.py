"""The pages in a real browser: what they promise holds.

``python -m tests.service.static.test_pages docs`` makes the pictures of the documentation.
"""

from __future__ import annotations

import json
import shutil
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from hushprice.service.demo import shop as demo
from hushprice.service.settings import Settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

browser_needed = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")

LOYALTY, HURRY = 0.7341862, -0.2918374  # numbers that do not occur by chance


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


def _sell(site: Site, first: int, n: int, limit: float) -> None:
    """Sell tea to n customers, all of whom buy up to a price."""
    with httpx.Client(headers={"Authorization": f"Bearer {site.keys['seller']}"}) as client:
        outcomes = []
        for k in range(first, first + n):
            body = {"id": str(k), "context": [1.0, (k % 9 - 4) / 4]}
            price = client.post(f"{site.url}/v1/products/tea/offers", json=body).raise_for_status().json()["price"]
            bought = float(price < limit + (k % 5 - 2) / 2)
            outcomes.append({"offer": str(k), "y": bought})
            if len(outcomes) == 50:
                client.post(f"{site.url}/v1/products/tea/outcomes", json={"outcomes": outcomes}).raise_for_status()
                outcomes = []


@browser_needed
def test_the_page_says_that_demand_has_changed_and_an_admin_lets_it_forget(site: Site) -> None:
    page = site.page()
    site.dashboard(page, "tea")
    assert page.locator("#findings").is_hidden()
    _sell(site, 0, 800, 2.8)
    _sell(site, 800, 500, 1.0)
    _until(page, "!document.getElementById('findings').hidden")
    said = page.text_content("#findings-list") or ""
    assert "Demand changed after about" in said
    assert "The best price for the last customers went from" in said
    page.fill("#forget [name=half_life]", "300")
    page.click("#forget button")
    _until(page, "document.getElementById('events').textContent.includes('counts half after 300 others')")
    site.dashboard(page)
    assert page.locator("#forget").is_hidden()  # coffee is private
    assert page.locator("#findings").is_hidden()


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
