"""Mutations of a program's text: tokens and lines dropped, doubled, exchanged and replaced, and nodes of the syntax tree changed.

mutated(text, random.Random(7))         # one to three mutations
"""

from __future__ import annotations

import ast
import io
import keyword
import random
import tokenize
from collections.abc import Callable

WORDS = (
    "0", "1", "2", "-1", "3", "7", "1.0", "0.5", "2147483648", "9223372036854775807", "18446744073709551616", "1e400", "1e-50", "True",
    "None", "inf", "nan", '"S"', '"R"', '"O"', '"SS"', '"stack"', '""', "f32", "i64", "i32", "u8", "bool_", "f16", "i4", "Tensor", "Out",
    "InOut", "range", "vector", "parallel", "unroll", "grid", "block", "init", "where", "alloc", "view", "select", "min", "max", "cast",
    "exp", "check", "dim", "ops", "kernel", "function", "x", "y", "n", "i", "(", ")", "[", "]", ":", ",", "+", "-", "*", "/", "//", "%",
    "<", "<=", "==", "!=", "and", "or", "not", "if", "else", "for", "in", "while", "with", "as", "return", "lambda", "=", "+=", "*=", "()",
    "{}", "[]", "**", "*", "@", ".", "~", "<<", "is", "yield", "await", "import", "pass", "break", "def", "class", "global", "del",
)  # fmt: skip

Mutation = Callable[[str, random.Random], str]


def tokens_of(text: str) -> list[tokenize.TokenInfo]:
    """The tokens that carry meaning."""
    skipped = (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.COMMENT)
    try:
        return [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in skipped]
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return []


def replaced(text: str, t: tokenize.TokenInfo, new: str) -> str:
    """The text with another token in a place."""
    lines = text.splitlines(keepends=True)
    row, column = t.start
    if t.end[0] != row:
        return text
    line = lines[row - 1]
    lines[row - 1] = line[:column] + new + line[t.end[1] :]
    return "".join(lines)


def token(text: str, rng: random.Random) -> str:
    """A token dropped, doubled, exchanged with another one of the text, or replaced by a word of the languages."""
    found = tokens_of(text)
    if not found:
        return text
    t = rng.choice(found)
    other = rng.choice(found).string if rng.random() < 0.5 else rng.choice(WORDS)
    return replaced(text, t, rng.choice(["", f"{t.string} {t.string}", other, other, other, f" {other} "]))


def name(text: str, rng: random.Random) -> str:
    """A name for another name of the text."""
    found = [t for t in tokens_of(text) if t.type == tokenize.NAME and not keyword.iskeyword(t.string)]
    return replaced(text, rng.choice(found), rng.choice(found).string) if found else text


def number(text: str, rng: random.Random) -> str:
    """A number for another one."""
    found = [t for t in tokens_of(text) if t.type == tokenize.NUMBER]
    return replaced(text, rng.choice(found), rng.choice(WORDS[:14])) if found else text


def line(text: str, rng: random.Random) -> str:
    """A line dropped, doubled, moved, indented or cut short."""
    lines = text.splitlines(keepends=True)
    if not lines:
        return text
    k, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(6):
        case 0:
            del lines[k]
        case 1:
            lines.insert(j, lines[k])
        case 2:
            lines[k], lines[j] = lines[j], lines[k]
        case 3:
            lines[k] = "    " + lines[k]
        case 4:
            lines[k] = lines[k].removeprefix("    ")
        case _:
            lines[k] = lines[k][: rng.randrange(len(lines[k]) + 1)] + "\n"
    return "".join(lines)


def tree(text: str, rng: random.Random) -> str:
    """An expression or statement of the syntax tree for another one of it."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text
    kind = ast.expr if rng.random() < 0.7 else ast.stmt
    nodes = [x for x in ast.walk(module) if isinstance(x, kind)]
    if len(nodes) < 2:
        return text
    old, new = rng.sample(nodes, 2)

    class Exchange(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return new if node is old else self.generic_visit(node)

    if any(x is old for x in ast.walk(new)):
        return text
    try:
        return ast.unparse(Exchange().visit(module)) + "\n"
    except (ValueError, TypeError, AttributeError, RecursionError):
        return text


def characters(text: str, rng: random.Random) -> str:
    """A character of any kind somewhere."""
    k = rng.randrange(len(text) + 1)
    return (
        text[:k]
        + rng.choice(["\0", "\t", "\r", "\f", "é", "\u2028", "\\", "'", '"', "#", "(", "\ud800", "0", " "])
        + text[k + rng.randrange(2) :]
    )


def nested(text: str, rng: random.Random) -> str:
    """An expression many levels deep."""
    found = [t for t in tokens_of(text) if t.type in (tokenize.NAME, tokenize.NUMBER) and not keyword.iskeyword(t.string)]
    if not found:
        return text
    t, depth = rng.choice(found), rng.choice([50, 150, 1000])
    return replaced(text, t, rng.choice(["-" * depth + t.string, "(" * depth + t.string + ")" * depth, " + ".join([t.string] * depth)]))


MUTATIONS: tuple[Mutation, ...] = (*[token] * 6, *[name] * 5, *[number] * 3, *[line] * 3, *[tree] * 6, characters, nested)


def mutated(text: str, rng: random.Random) -> str:
    """The text after one to three mutations."""
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        text = rng.choice(MUTATIONS)(text, rng)
    return text
