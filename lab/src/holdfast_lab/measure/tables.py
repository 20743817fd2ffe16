"""Tables as text: Markdown, and aligned columns for a terminal."""

from collections.abc import Iterable, Mapping, Sequence


def markdown(header: Sequence[str], rows: Iterable[Sequence[object]], words: int | None = None) -> str:
    """A table in Markdown; columns after the first `words` are right-aligned numbers. A bar cannot break a cell."""
    count = len(header) if words is None else words
    lines = [header, ["---"] * count + ["--:"] * (len(header) - count), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |" for line in lines)


def columns(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Aligned columns: the first is text, the others are right-aligned numbers."""
    lines = [[str(cell) for cell in line] for line in (header, *rows)]
    first, *others = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([line[0].ljust(first), *(cell.rjust(width) for cell, width in zip(line[1:], others, strict=True))])
        for line in lines
    )


def fields(values: Mapping[str, object]) -> str:
    """One line for each name and its value."""
    texts = [f"{value:,}" if type(value) is int else str(value) for value in values.values()]
    shown = dict(zip((name.replace("_", " ") for name in values), texts, strict=True))
    names, width = max(map(len, shown)), max(map(len, texts))
    return "\n".join(f"{name:<{names}}  {text:>{width}}" for name, text in shown.items())
