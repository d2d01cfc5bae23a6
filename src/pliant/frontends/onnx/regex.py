"""Regular expressions with RE2's syntax, matched in linear time, so that no pattern of a model file can make a match take forever.

Python's parser reads the pattern. Its tree becomes an NFA (Thompson's construction) whose states are simulated all at once, so a
match costs at most the length of the text times the number of states. Python's `re` backtracks and can take exponential time.

    compile_pattern(r"[a-z]+\\d{2,4}").fullmatch("abc123")      # True
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

MOST_STATES = 10_000  # a limit on memory and time: `x{1000}{1000}` would have a million states

Test = Callable[[str], bool]  # True if a character matches
Condition = Callable[[str, int], bool]  # True if an assertion such as `^` holds at an index of a text

# Syntax nodes of Python's `re` that need backtracking; RE2 has none of them.
_OUTSIDE = ("ASSERT", "ASSERT_NOT", "GROUPREF", "GROUPREF_EXISTS", "GROUPREF_IGNORE", "ATOMIC_GROUP", "POSSESSIVE_REPEAT")


class PatternError(ValueError):
    """Raised for a text that is not a valid regular expression."""


class UnsupportedPatternError(PatternError):
    """Raised for a regular expression that uses a feature RE2 does not have, or is too large."""


@dataclass(slots=True)
class _State:
    """An NFA state: consumes a character that passes `test` and goes to `after`; without a test, an epsilon edge if `condition` holds."""

    test: Test | None = None
    condition: Condition | None = None
    after: list[_State] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled regular expression: an NFA."""

    start: _State
    end: _State

    def fullmatch(self, text: str) -> bool:
        """True if the whole text matches."""
        now = _reached([self.start], text, 0)
        for at, character in enumerate(text):
            passed = [s for s in now if s.test is not None and s.test(character)]
            now = _reached([after for s in passed for after in s.after], text, at + 1)
            if not now:
                return False
        return any(s is self.end for s in now)


def _reached(states: list[_State], text: str, at: int) -> list[_State]:
    """Returns the epsilon closure of the states at index `at`: those that no condition excludes. Empties the list `states`."""
    seen: dict[int, _State] = {}
    todo = states
    while todo:
        s = todo.pop()
        if id(s) in seen or (s.condition is not None and not s.condition(text, at)):
            continue
        seen[id(s)] = s
        if s.test is None:
            todo.extend(s.after)
    return list(seen.values())


def compile_pattern(text: str) -> Pattern:
    """Compiles a pattern to an NFA; raises a PatternError if it is invalid or not supported."""
    try:
        tree = re._parser.parse(text)  # type: ignore[attr-defined]
        end = _State()
        return Pattern(_Builder().sequence(tree, end, tree.state.flags), end)
    except (re.error, RecursionError, OverflowError) as problem:
        raise PatternError(str(problem) or "it is nested too deeply") from None


class _Builder:
    """Builds the NFA of a syntax tree, from its end to its start."""

    def __init__(self) -> None:
        self.count = 0

    def spend(self) -> None:
        """Counts a state, or a copy of a repeated part (which may be empty and have no states); raises at the limit."""
        self.count += 1
        if self.count > MOST_STATES:
            raise UnsupportedPatternError(f"it has more than {MOST_STATES} states")

    def state(self, after: list[_State], test: Test | None = None, condition: Condition | None = None) -> _State:
        """Creates an NFA state; raises if the expression has too many."""
        self.spend()
        return _State(test, condition, after)

    def sequence(self, items: Any, after: _State, flags: int) -> _State:
        """Returns the first NFA state of a sequence of items that continues at `after`."""
        for op, value in reversed(list(items)):
            after = self.item(str(op), value, after, flags)
        return after

    def item(self, op: str, value: Any, after: _State, flags: int) -> _State:
        """Returns the first state of one item of the syntax tree that continues at `after`.

        Raises UnsupportedPatternError for what RE2 lacks.
        """
        match op:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                return self.state([after], _test(op, value, flags))
            case "AT":
                return self.state([after], condition=_condition(str(value), bool(flags & re.MULTILINE)))
            case "BRANCH":
                return self.state([self.sequence(arm, after, flags) for arm in value[1]])
            case "SUBPATTERN":
                _, added, removed, body = value
                return self.sequence(body, after, (flags | added) & ~removed)
            case "MAX_REPEAT" | "MIN_REPEAT":  # greediness decides what groups capture, not whether the text matches
                least, most, body = value
                return self.repeat(least, most, body, after, flags)
        if op in _OUTSIDE:
            raise UnsupportedPatternError("it looks around or refers to a group, which RE2 does not have")
        raise UnsupportedPatternError(f"it uses {op}, which RE2 does not have")

    def repeat(self, least: int, most: int, body: Any, after: _State, flags: int) -> _State:
        """Returns the first state of `body` repeated `least` to `most` times: copies, and a loop if there is no upper limit."""
        if most == re._parser.MAXREPEAT:  # type: ignore[attr-defined]
            loop = self.state([after])
            loop.after.append(self.sequence(body, loop, flags))
            after = loop
        else:
            end = after
            for _ in range(most - least):
                after = self.state([self.sequence(body, after, flags), end])
        for _ in range(least):
            self.spend()
            after = self.sequence(body, after, flags)
        return after


def _test(op: str, value: Any, flags: int) -> Test:
    """Returns the test for one character of a syntax tree item, with case folding if the flags ask for it."""
    plain = _plain_test(op, value, flags)
    if not flags & re.IGNORECASE:
        return plain
    if op == "NOT_LITERAL":
        other = _test("LITERAL", value, flags)
        return lambda c: not other(c)
    if op == "IN" and value and str(value[0][0]) == "NEGATE":
        inside = _test("IN", value[1:], flags)
        return lambda c: not inside(c)
    return lambda c: plain(c) or plain(c.lower()) or plain(c.upper())


def _plain_test(op: str, value: Any, flags: int) -> Test:
    """Returns the test of one character for a syntax node, without case folding."""
    match op:
        case "LITERAL":
            return lambda c: len(c) == 1 and ord(c) == value
        case "NOT_LITERAL":
            return lambda c: ord(c) != value
        case "ANY":
            return (lambda c: True) if flags & re.DOTALL else (lambda c: c != "\n")
        case "RANGE":
            return lambda c: len(c) == 1 and value[0] <= ord(c) <= value[1]
        case "CATEGORY":
            return _CATEGORIES[str(value)]
    negated = bool(value) and str(value[0][0]) == "NEGATE"
    parts = [_plain_test(str(o), v, flags) for o, v in value[negated:]]
    return lambda c: any(part(c) for part in parts) != negated


def _is_digit(c: str) -> bool:
    """True if a character is in RE2's class d: 0 to 9."""
    return c in "0123456789" and len(c) == 1


def _is_space(c: str) -> bool:
    """True if a character is in RE2's class s: ASCII white space without the vertical tab."""
    return c in "\t\n\f\r " and len(c) == 1  # RE2's \s has no vertical tab


def _is_word(c: str) -> bool:
    """True if a character is in RE2's class w: ASCII letters, digits and underscore."""
    return c.isascii() and (c.isalnum() or c == "_")


# RE2's character classes contain ASCII only.
_CATEGORIES: dict[str, Test] = {
    "CATEGORY_DIGIT": _is_digit,
    "CATEGORY_NOT_DIGIT": lambda c: not _is_digit(c),
    "CATEGORY_SPACE": _is_space,
    "CATEGORY_NOT_SPACE": lambda c: not _is_space(c),
    "CATEGORY_WORD": _is_word,
    "CATEGORY_NOT_WORD": lambda c: not _is_word(c),
}


def _boundary(text: str, at: int) -> bool:
    """True if a position in the text is a word boundary."""
    return (at > 0 and _is_word(text[at - 1])) != (at < len(text) and _is_word(text[at]))


def _condition(name: str, lines: bool) -> Condition:
    """Returns the condition of an assertion such as `^` or word boundary; with `lines`, `^` and `$` also match at line ends."""
    match name:
        case "AT_BEGINNING" if lines:
            return lambda text, at: at == 0 or text[at - 1] == "\n"
        case "AT_BEGINNING" | "AT_BEGINNING_STRING":
            return lambda text, at: at == 0
        case "AT_END" if lines:
            return lambda text, at: at == len(text) or text[at] == "\n"
        case "AT_END" | "AT_END_STRING":
            return lambda text, at: at == len(text)
        case "AT_BOUNDARY":
            return _boundary
    return lambda text, at: not _boundary(text, at)
