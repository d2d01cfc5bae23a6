"""The bounds of a report's size, for models of any size: browsers render huge pages slowly.

texts = Texts(1_000_000)
texts.take(long_text)          # its first lines, as long as there is room
"""

from __future__ import annotations

from markupsafe import Markup, escape

MOST_ROWS = 2000  # of a table, of the tree of layers, and of marks in a picture
MOST_LINES = 3000  # of one text
MOST_TEXT = 4_000_000  # characters of all texts of kernels, as they are in the page


class Texts:
    """Room for the texts of a page, in characters of escaped markup."""

    def __init__(self, room: int = MOST_TEXT) -> None:
        self._room = room

    def take(self, text: str) -> Markup:
        """Returns a text as markup: its first lines, and the number of those that are left out."""
        lines, kept = text.splitlines(), []
        for line in lines[:MOST_LINES]:
            shown = escape(line)
            if len(shown) >= self._room:
                break
            self._room -= len(shown) + 1
            kept.append(shown)
        more = len(lines) - len(kept)
        return Markup("\n").join([*kept, *([f"… {more} further line{'s' * (more != 1)}"] if more else [])])
