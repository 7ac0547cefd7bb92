"""One self-contained HTML page of text, tables and pictures: no scripts, and nothing to load."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from numbers import Integral, Real
from typing import Literal, TypeGuard

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from hushprice.errors import InvalidInput

Value = str | float | int | None
DPI = 130
LONG = 40  # characters from which a cell of a table is given room to read
# The tone of a badge, by its word; other words get a plain one.
TONES = {
    "good": ("agrees", "holds", "faster", "passes", "pass", "ok", "yes", "done"),
    "near": ("close", "too few", "open", "near", "partly", "warning"),
    "bad": ("differs", "fails", "slower", "fail", "no", "missing", "error"),
}


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure, what it shows in words for those who cannot see it, and a caption.

    Pictures are embedded as PNG; ``kind="svg"`` stays sharp, but grows with every point drawn.
    """

    figure: Figure
    alt: str
    caption: str = ""
    kind: Literal["png", "svg"] = "png"
    name: str = "picture"  # of its file, where it is one


@dataclass(frozen=True)
class Table:
    """Rows by column name. The words in ``status_column`` ("agrees", "close", "fails", ...) are shown as badges."""

    rows: Sequence[Mapping[str, Value]]
    caption: str
    status_column: str | None = None

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in the order they first come up."""
        return list(dict.fromkeys(name for row in self.rows for name in row))


@dataclass(frozen=True)
class Section:
    """A heading, the anchor that links lead to, and what follows: paragraphs, tables, pictures and a note."""

    heading: str
    anchor: str
    text: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()
    note: str | None = None

    @property
    def paragraphs(self) -> list[str]:
        """Its text; one string is one paragraph."""
        return [self.text] if isinstance(self.text, str) else list(self.text)


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """A complete HTML document.

    >>> words = page("Prices & privacy", "What we found.", [Section("Results", "results", text=["All is well."])])
    >>> "<h1>Prices &amp; privacy</h1>" in words
    True
    """
    _check(sections)
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            # Browsers then refuse to load anything at all.
            '<meta http-equiv="Content-Security-Policy"'
            " content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">",
            f"<title>{escape(title)}</title>",
            f"<style>{CSS}</style>",
            "</head>",
            "<body>",
            "<header>",
            f"<h1>{escape(title)}</h1>",
            f'<p class="lead">{escape(lead)}</p>',
            "</header>",
            *_contents(sections),
            "<main>",
            *(line for section in sections for line in _section(section)),
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def number(value: float) -> str:
    """Four significant digits or all before the point, thousands separated; blank for NaN.

    >>> number(1234567.8), number(0.0123456), number(12), number(-3.0)
    ('1,234,568', '0.01235', '12', '-3')
    """
    if isinstance(value, Integral):
        return f"{int(value):,}"
    if np.isnan(value):
        return ""
    if np.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e12 else f"{value:,.4g}"


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> duration(42), duration(700), duration(9000)
    ('42 s', '12 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _check(sections: Sequence[Section]) -> None:
    anchors = [section.anchor for section in sections]
    for anchor in anchors:
        if not anchor or any(c.isspace() for c in anchor):
            raise InvalidInput(f"An anchor must be a word without spaces, got {anchor!r}.")
        if anchors.count(anchor) > 1:
            raise InvalidInput(f"Two sections have the anchor {anchor!r}.")


def _contents(sections: Sequence[Section]) -> list[str]:
    if not sections:
        return []
    items = [f'<li><a href="#{escape(s.anchor)}">{escape(s.heading)}</a></li>' for s in sections]
    return ['<nav aria-label="Contents">', "<h2>Contents</h2>", "<ol>", *items, "</ol>", "</nav>"]


def _section(section: Section) -> list[str]:
    lines = [f'<section id="{escape(section.anchor)}">', f"<h2>{escape(section.heading)}</h2>"]
    lines += [f"<p>{escape(paragraph)}</p>" for paragraph in section.paragraphs]
    lines += [line for table in section.tables for line in _table(table)]
    lines += [line for picture in section.pictures for line in _picture(picture)]
    if section.note:
        lines.append(f'<p class="note">{escape(section.note)}</p>')
    return [*lines, "</section>"]


def _picture(picture: Picture) -> list[str]:
    """The picture at 96 dots an inch; on a narrow screen it shrinks to 40rem and then scrolls."""
    width, height = (round(96 * inches) for inches in picture.figure.get_size_inches())
    image = (
        f'<img src="{_data_uri(picture)}" alt="{escape(picture.alt)}" width="{width}" height="{height}"'
        f' style="min-width:min({width}px,40rem)">'
    )
    caption = [f"<figcaption>{escape(picture.caption)}</figcaption>"] if picture.caption else []
    return ["<figure>", f'<div class="scroll">{image}</div>', *caption, "</figure>"]


def _data_uri(picture: Picture) -> str:
    if picture.kind not in ("png", "svg"):
        raise InvalidInput(f"A picture's kind must be 'png' or 'svg', got {picture.kind!r}.")
    buffer = io.BytesIO()
    # Neither dates nor versions nor random names: the same figures give the same page.
    metadata = {"Software": None} if picture.kind == "png" else {"Date": None}
    with mpl.rc_context({"svg.hashsalt": "hushprice"}):
        picture.figure.savefig(buffer, format=picture.kind, dpi=DPI, metadata=metadata)
    kind = "image/png" if picture.kind == "png" else "image/svg+xml"
    return f"data:{kind};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def _table(table: Table) -> list[str]:
    columns, caption = table.columns, escape(table.caption)
    if table.rows and table.status_column is not None and table.status_column not in columns:
        raise InvalidInput(f"There is no column {table.status_column!r} for the status, only {', '.join(columns)}.")
    numeric = {name for name in columns if any(_is_number(row.get(name)) for row in table.rows)}
    head = [f'<th scope="col"{_class(name in numeric)}>{escape(name)}</th>' for name in columns]
    body = [
        "<tr>" + "".join(_cell(row.get(name), status=name == table.status_column) for name in columns) + "</tr>"
        for row in table.rows
    ]
    if not body:
        return ['<figure class="table">', f"<figcaption>{caption}</figcaption>", "<p>No rows.</p>", "</figure>"]
    return [
        '<figure class="table">',
        f"<figcaption>{caption}</figcaption>",  # outside the table, so that it stays put when that scrolls
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}">',
        "<table>",
        f"<thead><tr>{''.join(head)}</tr></thead>",
        "<tbody>",
        *body,
        "</tbody>",
        "</table>",
        "</div>",
        "</figure>",
    ]


def _cell(value: Value, *, status: bool) -> str:
    if value is None:
        return "<td></td>"
    if _is_number(value):
        return f"<td{_class(True)}>{number(value)}</td>"
    word = escape(_words(value))
    if status:
        return f'<td><span class="badge {_tone(word)}">{word}</span></td>'
    return f'<td class="long">{word}</td>' if len(word) > LONG else f"<td>{word}</td>"


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool)


def _words(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _class(numeric: bool) -> str:
    return ' class="number"' if numeric else ""


def _tone(word: str) -> str:
    return next((tone for tone, words in TONES.items() if word.strip().lower() in words), "plain")


CSS = """
:root {
  color-scheme: light dark;
  --paper: #fff; --ink: #1c1f24; --soft: #5a6270; --line: #d9dde3; --stripe: #f5f6f8; --link: #0a58a8;
  --good: #0f6b3c; --good-back: #dff3e7; --near: #7a4d00; --near-back: #fdeecb;
  --bad: #9c1c1c; --bad-back: #fbe1e1; --plain: #444b57; --plain-back: #e8ebef;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #15181d; --ink: #e6e8eb; --soft: #a3abb8; --line: #353b45; --stripe: #1c2027; --link: #7ab8ff;
    --good: #8fe0b2; --good-back: #123524; --near: #f5cf7d; --near-back: #3a2a08;
    --bad: #ffaaaa; --bad-back: #431818; --plain: #c7cdd6; --plain-back: #2a3039;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 70rem; padding: 1.5rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  overflow-wrap: break-word;
}
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 0 0 0.6rem; }
p { max-width: 46rem; margin: 0.6rem 0; }
a { color: var(--link); }
.lead { font-size: 1.1rem; color: var(--soft); }
.note, figcaption { font-size: 0.9rem; color: var(--soft); }
nav { margin: 1.5rem 0; padding: 0.9rem 1.1rem; background: var(--stripe); border-radius: 0.5rem; }
nav h2 { font-size: 1rem; }
nav ol { margin: 0; padding-left: 1.4rem; }
section { margin: 2.4rem 0 0; padding-top: 1.4rem; border-top: 1px solid var(--line); }
figure { margin: 1.2rem 0; }
figcaption { max-width: 46rem; margin: 0.4rem 0; }
.scroll { overflow-x: auto; }
img { display: block; max-width: 100%; height: auto; background: #fff; border-radius: 0.4rem; }
table { border-collapse: collapse; font-size: 0.92rem; }
th, td { padding: 0.35rem 0.8rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
thead th { border-bottom: 2px solid var(--soft); vertical-align: bottom; }
tbody tr:nth-child(even) { background: var(--stripe); }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.long { min-width: 16rem; }
.badge {
  display: inline-block; padding: 0 0.55rem; border: 1px solid currentColor; border-radius: 1rem;
  font-size: 0.85rem; font-weight: 600; white-space: nowrap;
}
.good { color: var(--good); background: var(--good-back); }
.near { color: var(--near); background: var(--near-back); }
.bad { color: var(--bad); background: var(--bad-back); }
.plain { color: var(--plain); background: var(--plain-back); }
@media print {
  :root {
    --paper: #fff; --ink: #000; --soft: #444; --line: #bbb; --stripe: #fff; --link: #000;
    --good: #0f6b3c; --good-back: #fff; --near: #7a4d00; --near-back: #fff;
    --bad: #9c1c1c; --bad-back: #fff; --plain: #444; --plain-back: #fff;
  }
  body { max-width: none; padding: 0; font-size: 10pt; }
  .scroll { overflow: visible; }
  .long { min-width: 0; }
  img { min-width: 0 !important; }
  figure, tr { break-inside: avoid; }
  .table { break-inside: auto; }
  h2 { break-after: avoid; }
}
"""
