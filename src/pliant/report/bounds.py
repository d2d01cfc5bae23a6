"""The bounds of a report's size, for models of any size: browsers render huge pages slowly.

texts = Texts(1_000_000)
texts.take(long_text)          # its first lines, as long as there is room
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

MOST_ROWS = 2000  # of a table, of the tree of layers, and of marks in a picture
MOST_LINES = 3000  # of one text
MOST_TEXT = 4_000_000  # characters of all texts of kernels, as they are in the page; so many again of compiler steps, and of the program


class Texts:
    """Room for the texts of a page, in characters of escaped markup."""

    def __init__(self, room: int = MOST_TEXT) -> None:
        self._room = room

    @property
    def is_full(self) -> bool:
        """True if there is no room for another line of usual length."""
        return self._room < 200

    def take(self, text: str) -> Markup:
        """Returns a text as markup: its first lines, and the number of those that are left out."""
        return self._take(text.splitlines(), escape)

    def take_diff(self, lines: Sequence[str]) -> Markup:
        """Returns the lines of a unified diff as markup, in which added and removed lines are elements `ins` and `del`."""
        return self._take(lines, _changed)

    def _take(self, lines: Sequence[str], markup: Callable[[str], Markup]) -> Markup:
        """Returns the first lines as markup, for which there is room, and the number of those that are left out."""
        kept = []
        for line in lines[:MOST_LINES]:
            shown = markup(line)
            if len(shown) >= self._room:
                break
            self._room -= len(shown) + 1
            kept.append(shown)
        more = len(lines) - len(kept)
        return Markup("\n").join([*kept, *([f"… {more} further line{'s' * (more != 1)}"] if more else [])])


def _changed(line: str) -> Markup:
    """Returns a line of a diff as markup; a line `@@ name` is a heading."""
    tag = {"+": "ins", "-": "del", "@": "b"}.get(line[:1])
    return escape(line) if tag is None else Markup(f"<{tag}>{{}}</{tag}>").format(line)
