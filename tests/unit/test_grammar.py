"""The grammars at the head of the three languages' files name exactly the classes there are, with their fields."""

from __future__ import annotations

import dataclasses
import inspect
import re
from types import ModuleType

import pytest

import pliant.graph.node as graph
import pliant.loop.buffer
import pliant.loop.stmt as loop
import pliant.program
import pliant.sym.expr as sym

# What a grammar mentions although it lives elsewhere: the grammars say where.
ELSEWHERE: dict[str, dict[str, type]] = {
    graph.__name__: {"Program": pliant.program.Program},
    loop.__name__: {},
    sym.__name__: {"Load": pliant.loop.buffer.Load},
}
NODES: dict[str, type] = {graph.__name__: graph.Node, loop.__name__: loop.Stmt, sym.__name__: sym.Expr}
MODULES = [graph, loop, sym]


def grammar(module: ModuleType) -> str:
    """The first indented part of the docstring that has rules, `name = Class(...)`."""
    parts = re.findall(r"(?:^ {4}.*\n)+", module.__doc__ or "", flags=re.MULTILINE)
    return next(p for p in parts if re.match(r" +\w+ +=", p))


def productions(module: ModuleType) -> dict[str, list[str]]:
    """The classes that stand after `=` or `|`, with the names of what they are made of."""
    found: dict[str, list[str]] = {}
    for name, fields in re.findall(r"[=|] ([A-Z]\w*)\(([^()]*)\)", grammar(module)):
        assert name not in found, f"{name} stands twice in the grammar"
        found[name] = [f.strip() for f in fields.split(",")]
    return found


def classes(module: ModuleType) -> dict[str, type]:
    """The classes that a module defines."""
    return {n: c for n, c in vars(module).items() if inspect.isclass(c) and c.__module__ == module.__name__}


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_every_name_of_the_grammar_is_a_class(module: ModuleType) -> None:
    known = classes(module) | ELSEWHERE[module.__name__]
    assert [name for name in productions(module) if name not in known] == []


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_every_class_of_nodes_is_in_the_grammar(module: ModuleType) -> None:
    base = NODES[module.__name__]
    kinds = {n: c for n, c in classes(module).items() if issubclass(c, base)}
    with_kinds_below = {b for c in kinds.values() for b in c.__mro__[1:]} - {sym.Var}  # a Dim is a Var, which is a node itself
    leaves = [n for n, c in kinds.items() if c not in with_kinds_below]
    assert len(leaves) > 8
    assert [name for name in leaves if name not in productions(module)] == []


@pytest.mark.parametrize("module", [graph, loop], ids=lambda m: m.__name__)
def test_the_grammar_has_the_fields_of_the_classes(module: ModuleType) -> None:
    """All fields, in order, but for notes that say nothing of what a program means."""
    notes = {"span", "annotations", "attrs", "origin", "outs", "requires", "help"}
    for name, written in productions(module).items():
        cls = (classes(module) | ELSEWHERE[module.__name__])[name]
        fields = [f.name for f in dataclasses.fields(cls)]
        assert written == [f for f in fields if f in written], f"{name}: the grammar says {written}, the class has {fields}"
        left_out = set(fields) - set(written) - notes
        assert left_out <= {"kind"}, f"{name}: the grammar does not say {left_out}"  # the error class of a Check


def test_expressions_have_as_many_operands_as_the_grammar_says() -> None:
    x, y = sym.Var("x", sym.i64), sym.Var("y", sym.i64)
    for name, fields in productions(sym).items():
        cls = classes(sym).get(name)
        if cls is not None and issubclass(cls, sym.Unary | sym.Binary):
            assert len(cls(x, y).args if issubclass(cls, sym.Binary) else cls(x).args) == len(fields), name
