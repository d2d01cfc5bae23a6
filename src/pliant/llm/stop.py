"""Stop strings: an answer ends before one, however tokens cut it, and no part of it is ever shown.

stops = StopStrings(["\\n\\nUser:"])
for piece in stream:
    print(stops.push(piece), end="")      # what may still become a stop string is held back
    if stops.found: break
print(stops.finish())
"""

from __future__ import annotations

from collections.abc import Sequence

from ..support.errors import Error

MAX_STOPS = 16  # each piece of text is compared with all of them
MAX_BYTES = 256  # as much text may be held back


class StopStrings:
    """Searches a text that arrives in pieces for stop strings; holds back text that may begin one."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        if isinstance(stops, str) or len(stops) > MAX_STOPS or any(not s or len(s.encode(errors="replace")) > MAX_BYTES for s in stops):
            raise Error(f"stop strings are at most {MAX_STOPS} texts of 1 to {MAX_BYTES} bytes")
        self.stops = tuple(stops)
        self.found: str | None = None
        self._held = ""

    def push(self, piece: str) -> str:
        """Takes one more piece; returns the text that is certain to be part of the answer."""
        if self.found is not None:
            return ""
        text = self._held + piece
        places = [(at + len(stop), at, stop) for stop in self.stops if (at := text.find(stop)) >= 0]
        if places:
            _, at, self.found = min(places)  # the one that ends first, so that the result does not depend on how the text was cut
            self._held = ""
            return text[:at]
        keep = self._may_begin(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """Returns the text that was held back, at the end of an answer without a stop string."""
        held, self._held = self._held, ""
        return held

    def _may_begin(self, text: str) -> int:
        """Returns the number of last characters that may be the beginning of a stop string."""
        longest = max((len(stop) for stop in self.stops), default=1) - 1
        for size in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[len(text) - size :]) for stop in self.stops):
                return size
        return 0
