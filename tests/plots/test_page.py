"""The HTML page: complete, well-formed, escaped, and with nothing to load."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from hushprice.errors import InvalidInput
from hushprice.plots import Picture, Section, Table, page
from hushprice.plots.page import Value, number

VOID = {"meta", "img", "br", "hr", "link", "input"}


class _Walk(HTMLParser):
    """Checks that tags are balanced, and collects elements, ids and text."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(document)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def _figure() -> Figure:
    figure = Figure(figsize=(3, 2))
    figure.subplots().plot([1, 2], [3, 4])
    return figure


def _table(**options: Any) -> Table:
    rows: list[dict[str, Value]] = [
        {"cell": "ETC", "T": 490000, "regret": 1234.5678, "ratio": 0.98765, "verdict": "agrees"},
        {"cell": "supCB", "T": 10000, "regret": None, "ratio": float("nan"), "verdict": "Differs"},
        {"cell": "UCB", "T": 10000, "regret": 3.0, "verdict": "unheard of"},
    ]
    return Table(rows, **({"caption": "Table 1", "status_column": "verdict"} | options))


def _document() -> str:
    pictures = [Picture(_figure(), alt="a line", caption="Figure 1"), Picture(_figure(), alt="again", kind="svg")]
    return page(
        "Report",
        "What we found.",
        [
            Section("First", "first", text=["One.", "Two."], tables=[_table()], pictures=pictures, note="Careful."),
            Section("Second", "second"),
        ],
    )


@pytest.fixture(scope="module")
def document() -> str:
    return _document()


def _cells(document: str) -> list[list[str]]:
    """The cells of the table, row by row, without tags."""
    rows = re.findall(r"<tr>(.*?)</tr>", document)
    return [[re.sub("<.*?>", "", cell) for cell in re.findall(r"<t[dh].*?</t[dh]>", row)] for row in rows]


def test_the_page_is_complete_and_well_formed(document: str) -> None:
    assert document.startswith("<!DOCTYPE html>\n<html lang=")
    walk = _Walk(document)
    assert [len(walk.all(tag)) for tag in ("html", "head", "title", "body", "h1", "main", "nav")] == [1] * 7
    assert {"One.", "Two.", "Careful.", "What we found.", "Figure 1", "Table 1"} <= set(walk.words)
    assert any(meta.get("name") == "viewport" for meta in walk.all("meta"))
    for rule in ("prefers-color-scheme: dark", "@media print", "overflow-x: auto"):
        assert rule in document


def test_nothing_is_loaded(document: str) -> None:
    for word in ("http://", "https://", "<script", "<link", "@import", "url("):
        assert word not in document
    assert all(source.startswith("data:") for source in re.findall(r'src="([^"]*)"', document))
    assert len(re.findall("src=", document)) == 2
    assert "default-src 'none'" in document


def test_pictures_are_embedded(document: str) -> None:
    images = _Walk(document).all("img")
    assert [image["alt"] for image in images] == ["a line", "again"]
    heads = []
    for image in images:
        kind, data = str(image["src"]).split(";base64,")
        heads.append((kind, base64.b64decode(data)))
    assert heads[0][0] == "data:image/png"
    assert heads[0][1].startswith(b"\x89PNG")
    assert int.from_bytes(heads[0][1][16:20], "big") == 390  # 3 inches at 130 dots
    assert heads[1][0] == "data:image/svg+xml"
    assert b"<svg" in heads[1][1]


def test_the_same_content_gives_the_same_page(document: str) -> None:
    assert _document() == document


def test_contents_lead_to_the_sections(document: str) -> None:
    walk = _Walk(document)
    links = [str(link["href"]) for link in walk.all("a")]
    assert links == ["#first", "#second"]
    assert [f"#{section['id']}" for section in walk.all("section")] == links


def test_tables_format_numbers_and_leave_none_blank(document: str) -> None:
    assert _cells(document) == [
        ["cell", "T", "regret", "ratio", "verdict"],
        ["ETC", "490,000", "1,235", "0.9877", "agrees"],
        ["supCB", "10,000", "", "", "Differs"],
        ["UCB", "10,000", "3", "", "unheard of"],
    ]
    assert '<td class="number">490,000</td>' in document
    assert '<th scope="col" class="number">T</th>' in document
    assert "<td>ETC</td>" in document


def test_a_status_is_a_badge_and_a_word(document: str) -> None:
    badges = re.findall(r'<span class="badge (\w+)">(.*?)</span>', document)
    assert badges == [("good", "agrees"), ("bad", "Differs"), ("plain", "unheard of")]
    assert 'class="badge' not in page("t", "l", [Section("s", "s", tables=[_table(status_column=None)])])


def test_every_text_is_escaped() -> None:
    evil = '<script>alert("x")</script>&'
    words = page(
        evil,
        evil,
        [
            Section(
                evil,
                "<script>",
                text=[evil],
                tables=[Table([{evil: evil, "status": evil}], evil, status_column="status")],
                pictures=[Picture(_figure(), alt=evil, caption=evil)],
                note=evil,
            )
        ],
    )
    assert "<script" not in words
    walk = _Walk(words)
    assert walk.all("script") == []
    # Title, h1, lead, contents, h2, paragraph, head and two cells of the table, two captions, note.
    assert walk.words.count(evil) == 12
    assert [region["aria-label"] for region in walk.all("div") if "aria-label" in region] == [evil]
    assert walk.all("img")[0]["alt"] == evil
    assert walk.all("section")[0]["id"] == "<script>"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0"), (1234567, "1,234,567"), (np.int64(-1200), "-1,200"), (0.5, "0.5"), (12.34567, "12.35"),
        (999.96, "1,000"), (12345.6, "12,346"), (np.float32(2.5), "2.5"), (1.23456e-7, "1.235e-07"),
        (2.5e15, "2.5e+15"), (float("inf"), "∞"), (float("-inf"), "-∞"), (float("nan"), ""),
    ],
)  # fmt: skip
def test_numbers(value: float, words: str) -> None:
    assert number(value) == words


def test_long_cells_get_room_and_truths_are_words() -> None:
    rows: list[dict[str, Value]] = [{"remark": "word " * 20, "kept": True}, {"remark": "short", "kept": False}]
    words = page("t", "l", [Section("s", "s", tables=[Table(rows, "c")])])
    assert words.count('<td class="long">') == 1
    assert [row[1] for row in _cells(words)] == ["kept", "yes", "no"]


def test_empty_parts_are_fine() -> None:
    assert _Walk(page("t", "l", [])).all("nav") == []
    walk = _Walk(page("t", "l", [Section("s", "s", text="One paragraph.", tables=[Table([], "Nothing", "status")])]))
    assert {"One paragraph.", "Nothing", "No rows."} <= set(walk.words)
    assert walk.all("table") == []


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(InvalidInput, match="without spaces"):
        page("t", "l", [Section("s", "two words")])
    with pytest.raises(InvalidInput, match="Two sections have the anchor 'a'"):
        page("t", "l", [Section("s", "a"), Section("u", "a")])
    with pytest.raises(InvalidInput, match="no column 'state'"):
        page("t", "l", [Section("s", "s", tables=[_table(status_column="state")])])
    with pytest.raises(InvalidInput, match="'png' or 'svg'"):
        page("t", "l", [Section("s", "s", pictures=[Picture(_figure(), "a", kind="gif")])])  # type: ignore[arg-type]
