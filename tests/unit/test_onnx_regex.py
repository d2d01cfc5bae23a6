"""Patterns of ONNX models: the same answers as Python's `re` where both agree on the syntax, in linear time, and what RE2 does not have."""

from __future__ import annotations

import random
import re

import pytest

from counts import seeds
from pliant.frontends.onnx.regex import PatternError, UnsupportedPatternError, compile_pattern

CHARACTERS = "abB1_ .\n"
ATOMS = ["a", "b", "B", r"\.", ".", r"\d", r"\D", r"\w", r"\W", r"[a-b1]", r"[^ab]", r"[^\w.]", r"\b", r"\B", r"\A", "^", "(?:)", "[B-b]"]
REPEATS = ["*", "+", "?", "*?", "{2}", "{1,2}", "{0,}", "{,3}"]


def pattern(rng: random.Random, depth: int) -> str:
    """A random pattern."""
    if depth == 0:
        return rng.choice(ATOMS)
    parts = [pattern(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    match rng.randrange(5):
        case 0:
            return f"({'|'.join(parts)})"
        case 1:
            return f"(?:{''.join(parts)}){rng.choice(REPEATS)}"
        case 2:
            return f"(?i:{''.join(parts)})"
        case 3:
            return f"(?s:{''.join(parts)})"
    return "".join(parts)


@pytest.mark.parametrize("first", seeds(400, 40_000, 100))
def test_as_python_matches(first: int) -> None:
    matched = 0
    for seed in range(first, first + 100):
        rng = random.Random(seed)
        text = pattern(rng, rng.randint(0, 3))
        ours, theirs = compile_pattern(text), re.compile(text, re.ASCII)
        least = 1 if r"\B" in text else 0  # before 3.14, Python's \B does not match an empty text
        for _ in range(20):
            subject = "".join(rng.choice(CHARACTERS) for _ in range(rng.randint(least, 5)))
            expected = theirs.fullmatch(subject) is not None
            assert ours.fullmatch(subject) == expected, (text, subject)
            matched += expected
    assert matched > 100  # else nothing would be shown


@pytest.mark.parametrize("text", ["(a+)+", "(a|a)*", "(a|aa)+", "a*a*a*a*a*a*a*a*", "(.*)*", "((a*)*)*"])
def test_patterns_that_make_a_backtracking_search_explode(text: str) -> None:
    assert compile_pattern(text).fullmatch("a" * 200)
    assert not compile_pattern(text + "c").fullmatch("a" * 200 + "b")


@pytest.mark.parametrize(
    "text", [r"(a)\1", "(?=a)a", "(?<!b)a", "(?>a)", "a++", "(a)?(?(1)b|c)", "(x{100}){200}", "((()" + "{1000}){1000}){1000}"]
)
def test_what_re2_does_not_have_or_is_too_large(text: str) -> None:
    with pytest.raises(UnsupportedPatternError):
        compile_pattern(text)


@pytest.mark.parametrize("text", ["(", "a{2,1}", "[b-a]", "(" * 5000 + ")" * 5000])
def test_what_is_no_pattern(text: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(text)


def test_ends_and_classes_are_those_of_re2() -> None:
    """Python's `$` also matches before a last newline, and its classes know other scripts."""
    assert not compile_pattern("a$.*").fullmatch("a\n")
    assert compile_pattern("(?s)a$|a.").fullmatch("a\n")
    assert not compile_pattern(r"\d").fullmatch("\u0663")
    assert compile_pattern("(?ms)a$.^b").fullmatch("a\nb")
