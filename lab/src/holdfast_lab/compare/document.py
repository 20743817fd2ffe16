"""Parts of a report, which can be written as Markdown or as HTML."""

import html
import re
from collections.abc import Sequence

import msgspec

from holdfast_lab.measure import tables


class Heading(msgspec.Struct, frozen=True):
    """A heading; level 1 is the title of the document."""

    level: int
    text: str


class Paragraph(msgspec.Struct, frozen=True):
    """A paragraph."""

    text: str


class Bullets(msgspec.Struct, frozen=True):
    """A list."""

    items: list[str]


class Table(msgspec.Struct, frozen=True):
    """Rows below a heading; the first `words` columns are text, the others numbers."""

    header: list[str]
    rows: list[list[str]]
    words: int = 1


class Code(msgspec.Struct, frozen=True):
    """A block of code."""

    text: str


class Picture(msgspec.Struct, frozen=True):
    """A plot: a file for Markdown, inline in HTML."""

    name: str
    title: str
    #: The SVG for HTML, drawn in the colour of the text around it.
    inline: str


Part = Heading | Paragraph | Bullets | Table | Code | Picture


def markdown(parts: Sequence[Part]) -> str:
    """The parts as Markdown."""
    return "\n\n".join(map(_as_markdown, parts)) + "\n"


def page(title: str, parts: Sequence[Part], style: str) -> str:
    """The parts as one HTML file without references to other files."""
    body = "\n".join(map(_as_html, parts))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{html.escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<style>\n{style}</style>\n</head>\n'
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _as_markdown(part: Part) -> str:
    match part:
        case Heading():
            return f"{'#' * part.level} {part.text}"
        case Bullets():
            return "\n".join(f"- {item}" for item in part.items)
        case Table():
            return tables.markdown(part.header, part.rows, part.words)
        case Code():
            return f"```\n{part.text}\n```"
        case Picture():
            return f"![{part.title}]({part.name})"
    return part.text


def _as_html(part: Part) -> str:
    match part:
        case Heading():
            return f"<h{part.level}>{_inline(part.text)}</h{part.level}>"
        case Bullets():
            return "<ul>\n" + "\n".join(f"<li>{_inline(item)}</li>" for item in part.items) + "\n</ul>"
        case Table():
            return _html_table(part)
        case Code():
            return f"<pre><code>{html.escape(part.text)}</code></pre>"
        case Picture():
            return f'<figure role="img" aria-label="{html.escape(part.title, quote=True)}">\n{part.inline}\n</figure>'
    return f"<p>{_inline(part.text)}</p>"


def _html_table(table: Table) -> str:
    head = "".join(f"<th{_kind(table, index)}>{_inline(cell)}</th>" for index, cell in enumerate(table.header))
    rows = (
        "<tr>" + "".join(f"<td{_kind(table, index)}>{_inline(cell)}</td>" for index, cell in enumerate(row)) + "</tr>"
        for row in table.rows
    )
    body = "\n".join(rows)
    return f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def _kind(table: Table, index: int) -> str:
    return "" if index < table.words else ' class="number"'


def _inline(text: str) -> str:
    """Bold and code of Markdown as HTML."""
    safe = html.escape(text, quote=False)
    safe = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", safe)
    return re.sub(r"`(.+?)`", r"<code>\1</code>", safe)
