"""One self-contained HTML page of text, tables and pictures: no scripts, and nothing to load.

The markup is in ``templates/report.html.j2``, its looks in ``templates/report.css``.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from typing import Literal

import jinja2
import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from hushprice.errors import InvalidInput

Value = str | float | int | None
DPI = 130
LONG_TEXT = 40  # characters; a table cell with more text gets a minimum width
# The tone of a badge, by its word; other words get a plain one.
TONES = {
    "good": ("agrees", "holds", "faster", "passes", "pass", "ok", "yes", "done"),
    "near": ("close", "too few", "open", "near", "partly", "warning"),
    "bad": ("differs", "fails", "slower", "fail", "no", "missing", "error"),
}


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure with its alternative text and caption.

    Parameters
    ----------
    figure
        The Matplotlib figure.
    alt
        What the figure shows, in words, for readers who cannot see it.
    caption
        Text below the figure; none if empty.
    kind
        The format embedded in a page. SVG stays sharp at any size, but grows with every point drawn.
    name
        Name of the image file (without suffix), when the figure is saved next to a document.
    """

    figure: Figure
    alt: str
    caption: str = ""
    kind: Literal["png", "svg"] = "png"
    name: str = "picture"


@dataclass(frozen=True)
class Table:
    """A table with a caption.

    Parameters
    ----------
    rows
        One mapping per row, from column name to value; a missing column leaves the cell empty.
    caption
        Text above the table.
    status_column
        The column whose words ("agrees", "close", "fails", ...) are shown as coloured badges.
    """

    rows: Sequence[Mapping[str, Value]]
    caption: str
    status_column: str | None = None

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in order of first appearance."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    @property
    def numeric_columns(self) -> set[str]:
        """Names of the columns that hold at least one number."""
        return {name for row in self.rows for name, value in row.items() if _is_number(value)}


@dataclass(frozen=True)
class Section:
    """One section of a page.

    Parameters
    ----------
    heading, anchor
        The heading, and the id that links point to.
    text
        Paragraphs; one string is one paragraph.
    pictures, tables
        Shown after the text, tables first.
    note
        A remark in small print at the end.
    """

    heading: str
    anchor: str
    text: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()
    note: str | None = None

    @property
    def paragraphs(self) -> list[str]:
        """The text as a list of paragraphs."""
        return [self.text] if isinstance(self.text, str) else list(self.text)


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """Render a complete HTML document.

    Parameters
    ----------
    title, lead
        The heading of the page and the paragraph below it.
    sections
        The sections, in order; their anchors must be unique.

    Returns
    -------
    str
        One file with its style and pictures embedded; all text is escaped.

    Raises
    ------
    InvalidInput
        If an anchor contains a space or is used twice, a status column does not exist, or a picture's kind is unknown.

    Examples
    --------
    >>> words = page("Prices & privacy", "The results.", [Section("Results", "results", text=["All is well."])])
    >>> "<h1>Prices &amp; privacy</h1>" in words
    True
    """
    _check(sections)
    return _environment().get_template("report.html.j2").render(title=title, lead=lead, sections=sections)


def number(value: float) -> str:
    """Format a number with four significant digits, or all digits before the point, and thousands separators.

    Parameters
    ----------
    value
        The number.

    Returns
    -------
    str
        The formatted number; empty for NaN.

    Examples
    --------
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
    """Format a duration in seconds, minutes or hours.

    Parameters
    ----------
    seconds
        The duration in seconds.

    Returns
    -------
    str
        Number and unit.

    Examples
    --------
    >>> duration(42), duration(700), duration(9000)
    ('42 s', '12 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("hushprice.plots"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["LONG_TEXT"] = LONG_TEXT
    environment.tests["numeric"] = _is_number
    environment.filters |= {
        "data_uri": _data_uri, "number": number, "pixels": _pixels, "tone": _tone, "words": _words,
    }  # fmt: skip
    return environment


def _check(sections: Sequence[Section]) -> None:
    anchors = [section.anchor for section in sections]
    for anchor in anchors:
        if not anchor or any(c.isspace() for c in anchor):
            raise InvalidInput(f"An anchor must be a word without spaces, got {anchor!r}.")
        if anchors.count(anchor) > 1:
            raise InvalidInput(f"Two sections have the anchor {anchor!r}.")
    for table in (table for section in sections for table in section.tables):
        if table.rows and table.status_column is not None and table.status_column not in table.columns:
            columns = ", ".join(table.columns)
            raise InvalidInput(f"There is no column {table.status_column!r} for the status, only {columns}.")


def _pixels(picture: Picture) -> tuple[int, int]:
    """Width and height at 96 dots per inch; on a narrow screen the picture shrinks to 40rem and then scrolls."""
    width, height = picture.figure.get_size_inches()
    return round(96 * width), round(96 * height)


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


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _words(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _tone(word: str) -> str:
    return next((tone for tone, words in TONES.items() if word.strip().lower() in words), "plain")
