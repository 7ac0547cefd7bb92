"""Write the sections of a page as Markdown, with pictures in separate files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hushprice.plots.page import Picture, Section, Table, Value, number


def markdown(title: str, lead: Sequence[str], sections: Sequence[Section], *, link: Callable[[Picture], str]) -> str:
    """A Markdown document.

    Parameters
    ----------
    title : str
        Heading of the document.
    lead : sequence of str
        Paragraphs below it.
    sections : sequence of Section
        The sections, in order.
    link : callable
        Returns the address of a picture.

    Returns
    -------
    str
        The document.

    Examples
    --------
    >>> print(markdown("Results", ["All of it."], [Section("Here", "here", text=["A > B"])], link=lambda _: "a.png"))
    # Results
    <BLANKLINE>
    All of it.
    <BLANKLINE>
    ## Here
    <BLANKLINE>
    A > B
    <BLANKLINE>
    """
    parts = [f"# {title}", *lead]
    for section in sections:
        parts += [f"## {section.heading}", *section.paragraphs]
        parts += [part for table in section.tables for part in (f"{table.caption}:", _table(table))]
        parts += [f"![{_text(picture.alt)}]({link(picture)})" for picture in section.pictures]
        parts += [section.note] if section.note else []
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> str:
    columns = table.columns
    lines = [_row(columns), "|" + "---|" * len(columns)]
    return "\n".join([*lines, *(_row([_value(row.get(name)) for name in columns]) for row in table.rows)])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_text(cell) for cell in cells) + " |"


def _value(value: Value) -> str:
    return "" if value is None else value if isinstance(value, str) else number(value)


def _text(text: str) -> str:
    """Text on one line, with the characters escaped that end a cell or begin a tag or a link."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[").replace("]", "\\]")
