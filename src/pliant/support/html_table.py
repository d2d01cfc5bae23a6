"""Small HTML tables, as notebooks show objects: `_repr_html_` of what users get. All texts are escaped.

html_table("layer", ("dim", "range"), [("n", "0..4096")])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], foot: str = "") -> str:
    """Returns a table with a caption above it, and the text `foot` below it if there is one; an empty head leaves out its row."""
    lines = [f"<table><caption>{escape(caption)}</caption>"]
    if head:
        lines.append(f"<thead>{_row(head, 'th')}</thead>")
    lines += ["<tbody>", *(_row(row, "td") for row in rows), "</tbody></table>"]
    return "\n".join([*lines, *([f"<p>{escape(foot)}</p>"] if foot else [])])


def _row(cells: Sequence[str], tag: str) -> str:
    left = ' style="text-align: left"'
    return f"<tr>{''.join(f'<{tag}{left}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
