"""Random regular expressions match what Python's `re` matches, where RE2 and `re` mean the same; what RE2 does not have is refused."""

from __future__ import annotations

import random
import re

import pytest

from counts import seeds
from pliant.frontends.onnx.regex import PatternError, UnsupportedPatternError, compile_pattern

BATCH = 200
LETTERS = "abAB1_ -"
CLASSES = ["\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "."]
ANCHORS = ["^", "\\b", "\\B", "\\A", "\\Z"]
OUTSIDE = ["(?=a)", "(?!a)", "(?<=a)", "(?<!b)", "(a)\\1", "(?P<n>a)(?P=n)", "(a)?(?(1)a|b)", "(?>a+)b", "a++"]
BROKEN = ["(", "a{2,1}", "[b-a]", "*a", "(?P<n>a)(?P<n>b)", "\\", "[a"]


class Generator:
    """Draws patterns and texts."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"regex {seed}")

    def pattern(self, depth: int) -> str:
        """A sequence of parts, or a choice between two."""
        parts = "".join(self.part(depth) for _ in range(self.random.randrange(1, 4)))
        return f"{parts}|{self.pattern(depth - 1)}" if depth and self.random.random() < 0.25 else parts

    def part(self, depth: int) -> str:
        r = self.random
        kind = r.random()
        if kind < 0.1:
            return r.choice(ANCHORS)
        if kind < 0.3 and depth:
            inner = self.pattern(depth - 1)
            atom = r.choice(["({})", "(?:{})", "(?i:{})", "(?s:{})"]).format(inner)
        elif kind < 0.5:
            atom = self.set_of()
        elif kind < 0.65:
            atom = r.choice(CLASSES)
        else:
            atom = r.choice(LETTERS)
        return atom + r.choice(["", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,1}", "{1,}"])

    def set_of(self) -> str:
        r = self.random
        members = [r.choice(["a", "B", "1", "_", " ", "a-b", "A-Z", "0-9", "\\d", "\\w", "\\S"]) for _ in range(r.randrange(1, 4))]
        return f"[{r.choice(['', '^'])}{''.join(members)}]"

    def text(self) -> str:
        return "".join(self.random.choice(f"{LETTERS}\n") for _ in range(self.random.randrange(6)))


def check(seed: int) -> None:
    g = Generator(seed)
    pattern = g.random.choice(["", "", "", "(?i)", "(?s)", "(?m)"]) + g.pattern(2)
    try:
        truth = re.compile(pattern, re.ASCII)
    except re.error:
        with pytest.raises(PatternError):
            compile_pattern(pattern)
        return
    found = compile_pattern(pattern)
    for text in ["", *(g.text() for _ in range(6))]:
        if not text and "\\B" in pattern:  # which RE2 finds in an empty text, and `re` before Python 3.14 does not
            continue
        assert found.fullmatch(text) == (truth.fullmatch(text) is not None), f"seed {seed}: {pattern!r} of {text!r}"


@pytest.mark.parametrize("first", seeds(2_000, 200_000, BATCH))
def test_as_pythons_own(first: int) -> None:
    for seed in range(first, first + BATCH):
        check(seed)


@pytest.mark.parametrize("seed", seeds(20, 500))
def test_what_re2_does_not_have_is_refused_wherever_it_stands(seed: int) -> None:
    g = Generator(seed)
    around = g.random.choice(["{}", "(?:{})", "(?:{})?", "b(?:{})", "(?:{})|c"])
    for part in OUTSIDE:
        with pytest.raises(UnsupportedPatternError):
            compile_pattern(around.format(part))
    for part in BROKEN:
        with pytest.raises(PatternError):
            compile_pattern(part)
