"""Stop strings: an answer ends before one, wherever it lies across tokens, and nothing of it is ever shown.

stops = StopStrings(["\\n\\nUser:"])
for piece in stream:
    print(stops.push(piece), end="")      # what may still become a stop string is held back
    if stops.found: break
print(stops.finish())
"""

from __future__ import annotations

from collections.abc import Sequence

from ..support.errors import Error

MAX_STOPS = 16
MAX_BYTES = 256


class StopStrings:
    """Watches a text that comes in pieces."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        if isinstance(stops, str) or len(stops) > MAX_STOPS or any(not s or len(s.encode(errors="replace")) > MAX_BYTES for s in stops):
            raise Error(f"stop strings are at most {MAX_STOPS} texts of 1 to {MAX_BYTES} bytes")
        self.stops = tuple(stops)
        self.found: str | None = None
        self._held = ""

    def push(self, piece: str) -> str:
        """The text that is certain to be part of the answer after one more piece."""
        if self.found is not None:
            return ""
        text = self._held + piece
        places = [(at + len(stop), at, stop) for stop in self.stops if (at := text.find(stop)) >= 0]
        if places:
            _, at, self.found = min(places)  # the first that is complete, so that it does not matter how the text was cut
            self._held = ""
            return text[:at]
        keep = self._may_begin(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """What was held back, when no stop string came of it."""
        held, self._held = self._held, ""
        return held

    def _may_begin(self, text: str) -> int:
        """How many of the last characters may be the beginning of a stop string."""
        longest = max((len(stop) for stop in self.stops), default=1) - 1
        for size in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[len(text) - size :]) for stop in self.stops):
                return size
        return 0
