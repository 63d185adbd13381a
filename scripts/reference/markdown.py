"""Print tables and texts as Markdown."""

from collections.abc import Iterable, Sequence


def cell(text: object) -> str:
    """Escape what a cell of a table cannot hold."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def code(text: object) -> str:
    """Quote a word of code for a cell of a table, where its bars end no cell."""
    return f"`{' '.join(str(text).split())}`"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out rows, whose cells are escaped already."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def page(title: str, *parts: str) -> str:
    """Join a title and the parts of a page."""
    return "\n\n".join((f"# {title}", *(part.strip("\n") for part in parts))) + "\n"
