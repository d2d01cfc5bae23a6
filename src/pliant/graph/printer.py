"""The printer of graph functions: writes an importable Python module that `parse_module` reads back to the same structure.

Dims come first, then the called graph functions, then the function: one node per line, with its annotation as a comment. Small
literals are printed inline; large ones as `constants["name"]`, and `constants_of` returns that mapping. Kernels appear by name only.
Run-time conditions and dims of a node are printed if deduction would not reproduce them (as for operators that were lowered).

    n = dim("n")


    @function
    def mlp(x: Tensor[f32, n, 64], w: Tensor[f32, 64, 128]) -> Tensor[f32, n, 128]:
        matmul = ops.matmul(x, w)  # Tensor[f32, n, 128]
        return matmul
"""

from __future__ import annotations

import builtins
import json
import keyword
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from ..dtype import ALL as DTYPES
from ..dtype import DType, bool_
from ..dtype import dtype as to_dtype
from ..support.names import unused_name
from ..support.postorder import postorder
from ..sym.expr import DIM_MAX, Dim, Expr, Var, free_vars
from ..sym.expr import Const as Literal
from ..sym.relations import KINDS, declarations
from ..sym.text import number_text, text
from . import node as g
from .annotation import annotation_vars
from .deduced import deduced_requires, follows_from_arguments
from .operators import attr_exprs
from .stand_in import StandIn, known

INLINE = 16  # literals up to this number of elements are printed inline: they fit on a line
WIDTH = 120  # longer signatures are printed with one parameter per line

# Names that printed text imports from pliant, and names that printed values must not have.
_WORDS = ("State", "Tensor", "cast", "dim", "function", "inf", "nan", "ops", "select", "strides")
_RESERVED = {*_WORDS, *DTYPES, "bool_", "constants", "tuple", *keyword.kwlist, *dir(builtins)}


def print_function(function: g.Function) -> str:
    """Returns a function, and the functions that it calls, as the text of a Python file."""
    return _Printer(function).module()


def constants_of(function: g.Function) -> dict[str, np.ndarray[Any, Any]]:
    """The literals that the printed function refers to by name, for `parse_module(…, constants=…)`."""
    constants: dict[str, np.ndarray[Any, Any]] = {}
    for f in called_functions(function):
        for n in g.walk_nodes(f.nodes):
            if isinstance(n, g.Const) and _is_large(n):
                constants[f"{f.name}.{n.outs[0].name}"] = known(n.outs[0].name, n.array)
    return constants


def called_functions(function: g.Function) -> list[g.Function]:
    """The function and all functions that it calls, callees first, each once."""
    return postorder(function, lambda f: [n.function for n in g.walk_nodes(f.nodes) if isinstance(n, g.CallFunction)])


def function_vars(function: g.Function) -> list[Var]:
    """Returns the dims and other variables of a function in order of appearance."""
    variables: dict[Var, None] = {}

    def note(a: g.Annotation) -> None:
        for v in sorted(annotation_vars(a), key=lambda v: v.payload[1]):
            variables[v] = None

    for p in function.params:
        note(p.annotation)
    for node in g.walk_nodes(function.nodes):
        for e in attr_exprs(node.attrs) if isinstance(node, g.Op) else ():
            variables.update(dict.fromkeys(sorted(free_vars(e), key=lambda v: v.payload[1])))
        for o in node.outs:
            note(o.annotation)
    return list(variables)


def _is_large(node: g.Node) -> bool:
    """True for a literal that is printed by name; empty ones too, because nested lists do not show their shape."""
    return isinstance(node, g.Const) and (node.array.size > INLINE or node.array.size == 0 or isinstance(node.array, StandIn))


class _Printer:
    """Prints a graph function: gives every function, dim and value a unique name, and writes the text."""

    def __init__(self, function: g.Function) -> None:
        self.functions = called_functions(function)
        self.taken: set[str] = set(_RESERVED)
        self.taken |= {p.name for f in self.functions for p in f.params}
        self.taken |= {n.callee.name for f in self.functions for n in g.walk_nodes(f.nodes) if isinstance(n, g.CallLoop)}
        self.function_names = {f: self.unique(f.name) for f in reversed(self.functions)}
        self.dims: dict[Var, str] = {}
        for f in self.functions:
            for v in function_vars(f):
                if v not in self.dims:
                    self.dims[v] = self.unique(v.name)
        self.values: dict[g.Value, str] = {}

    def unique(self, hint: str) -> str:
        """Returns a valid Python name that is not taken, derived from `hint`."""
        base = re.sub(r"\W", "_", hint) or "v"
        base = f"v{base}" if base[0].isdigit() else base
        return unused_name(base, self.taken)

    def module(self) -> str:
        """Returns the whole text of the file."""
        dims = self.declarations()
        parts = ["\n".join(dims)] if dims else []
        parts += ["\n".join(self.function(f)) for f in self.functions]
        body = "\n\n\n".join(parts) + "\n"
        bare = re.sub(r'"[^"\n]*"|#[^\n]*', "", body)
        used = set(re.findall(r"(?<![.\w])\w+\b(?!=)", bare))  # names only: not attributes, not keyword arguments
        words = sorted(used & ({*_WORDS} | {*DTYPES, "bool_"} - {"bool"}))
        return f"from pliant import {', '.join(words)}\n\n{body}" if dims else f"from pliant import {', '.join(words)}\n\n\n{body}"

    def declarations(self) -> list[str]:
        """The lines that declare the dims, each after those that its relations mention.

        Before them stands a comment for each relation that no dim can declare.
        """
        stated, others = declarations(r.cond for f in self.functions for r in g.relations(f))
        lines = [f"# {self.expr(r)} is checked when the program is called" for r in others]  # no declaration of one dim
        left = list(self.dims)
        while left:
            ready = next(v for v in left if not any(free_vars(e) & {*left} for _, e in stated.get(v, ())))
            left.remove(ready)
            lines.append(f"{self.dims[ready]} = {_dim_text(ready, self._relations(stated.get(ready, ())))}")
        return lines

    def _relations(self, stated: Sequence[tuple[str, Expr]]) -> str:
        """The keywords of a declaration that state relations to other dims."""
        sides = {kind: [self.dim(e) for k, e in stated if k == kind] for kind in KINDS}
        return "".join(f", {kind}={s[0] if len(s) == 1 else '(' + ', '.join(s) + ')'}" for kind, s in sides.items() if s)

    def function(self, f: g.Function) -> list[str]:
        """Returns the lines of one function."""
        taken = set(self.taken)
        for p in f.params:
            self.values[p] = p.name
        params = ", ".join(f"{p.name}: {self.annotation(p.annotation)}" for p in f.params)
        returns = [self.annotation(r.annotation) for r in f.results]
        shown = returns[0] if len(returns) == 1 else f"tuple[{', '.join(returns)}]"
        head = f"def {self.function_names[f]}({params}) -> {shown}:"
        if len(head) > WIDTH:
            every = "".join(f"    {p.name}: {self.annotation(p.annotation)},\n" for p in f.params)
            head = f"def {self.function_names[f]}(\n{every}) -> {shown}:"
        literals = {out for n in f.nodes if isinstance(n, g.Const) for out in n.outs}  # never renamed: `constants` has them by name
        for r, wanted in zip(f.results, g.output_names(f), strict=True):
            if r not in self.values and r not in literals and wanted not in self.taken and not g.is_state(r):
                self.values[r] = wanted
                self.taken.add(wanted)
        lines = ["@function", head]
        for node in f.nodes:
            lines += self.node(node, "    ", f)
        lines.append(f"    return {self.names(f.results)}")
        self.taken = taken
        return lines

    def name(self, value: g.Value) -> str:
        """Returns the printed name of a value; a new one at its first use."""
        name = self.values.get(value)
        if name is None:
            name = self.values[value] = self.unique(value.name)
        return name

    def names(self, values: tuple[g.Value, ...]) -> str:
        return ", ".join(map(self.name, values))

    def expr(self, e: Expr, expect: DType | None = None) -> str:
        return text(e, expect, lambda v: self.dims[v] if isinstance(v, Var) else str(v))

    def dim(self, e: Expr) -> str:
        return self.expr(e, DTYPES["i64"])

    def annotation(self, a: g.Annotation) -> str:
        """Returns an annotation in Python syntax."""
        match a:
            case g.Tensor():
                strides = [] if a.strides is None else [f"strides({', '.join(map(self.dim, a.strides))})"]
                return f"{'State' if a.state else 'Tensor'}[{', '.join([_dtype_text(a.dtype), *map(self.dim, a.shape), *strides])}]"
            case g.Scalar():
                return _dtype_text(a.dtype)
            case g.Shape():
                return f"Shape[{', '.join(map(self.dim, a.values))}]"
            case g.Tuple():
                return f"tuple[{', '.join(map(self.annotation, a.items))}]"

    # Nodes.

    def node(self, node: g.Node, indent: str, f: g.Function) -> list[str]:
        """Returns the lines of one node."""
        if isinstance(node, g.If):
            return self._if(node, indent, f)
        if isinstance(node, g.While):
            return self._while(node, indent, f)
        call = self.call(node, f)
        remark = ", ".join(self._remark(o.annotation) for o in node.outs)
        if node.requires:
            remark += "; checked: " + " and ".join(f"({self.expr(r.cond)})" for r in node.requires)
        if _is_large(node):
            assert isinstance(node, g.Const)
            values = "without values" if isinstance(node.array, StandIn) else f"crc32 {_checksum(node.array):08x}"
            remark += f", {values}"
        return [*self._requires(node, indent), f"{indent}{self.names(node.outs)} = {call}  # {remark}"]

    def _requires(self, node: g.Node, indent: str) -> list[str]:
        """The lines for the conditions of a node, if they differ from those that deduction gives."""
        if [_content(r) for r in node.requires] == [_content(r) for r in deduced_requires(node)]:
            return []
        return [f"{indent}{self._require(r)}" for r in node.requires]

    def _require(self, r: g.Require) -> str:
        """Returns the line for a run-time condition."""
        values = f", [{', '.join(map(self.dim, r.values))}]" if r.values else ""
        help_ = f", help={json.dumps(r.help, ensure_ascii=False)}" if r.help else ""
        return f"ops.require({self.expr(r.cond)}, {json.dumps(r.message, ensure_ascii=False)}{values}{help_})"

    def _remark(self, a: g.Annotation) -> str:
        """The comment for a result: its annotation, and the symbolic value of a scalar."""
        if isinstance(a, g.Scalar) and a.value is not None and not isinstance(a.value, Literal):
            return f"{_dtype_text(a.dtype)} = {self.expr(a.value, a.dtype)}"
        return self.annotation(a)

    def call(self, node: g.Node, f: g.Function) -> str:
        """Returns the expression that computes a node, i.e. the right-hand side of its line."""
        match node:
            case g.Const():
                return self._constant(node, f)
            case g.Op():
                return f"ops.{node.op}({', '.join([*self._op_args(node), *self._attrs(node.attrs)])})"
            case g.CallLoop():
                args = ", ".join(self.name(a) if isinstance(a, g.Value) else self.expr(a) for a in node.args)
                if follows_from_arguments(node):
                    return f"{node.callee.name}({args})"
                return f"ops.call_loop({node.callee.name}, [{args}], dims=[{', '.join(map(self.dim, node.dims))}])"
            case g.CallLibrary():
                return f'ops.call_library("{node.symbol}", [{self.names(node.args)}], out={self._out(node)})'
            case g.CallHost():
                return f"ops.call_host({getattr(node.fn, '__name__', 'fn')}, [{self.names(node.args)}], out={self._out(node)})"
            case g.CallFunction():
                name = self.function_names[node.function]
                bound = frozenset().union(*(annotation_vars(a.annotation) for a in node.args))
                if any(annotation_vars(o.annotation) - bound for o in node.outs):  # the call defines dims, and `out` names them
                    return f"ops.call_function({name}, [{self.names(node.args)}], out={self._out(node)})"
                return f"{name}({self.names(node.args)})"
            case g.MatchCast():
                return f"ops.match_cast({self.name(node.value)}, {self.annotation(node.outs[0].annotation)})"
        raise AssertionError(type(node).__name__)

    def _op_args(self, node: g.Op) -> Iterator[str]:
        """The printed arguments of an operator; concat takes a list."""
        if node.op == "concat":
            yield f"[{self.names(node.args)}]"
            return
        yield from map(self.name, node.args)

    def _out(self, node: g.Node) -> str:
        """Returns the text of the argument `out`: the annotations of a call's results."""
        shown = [self.annotation(o.annotation) for o in node.outs]
        return shown[0] if len(shown) == 1 else f"({', '.join(shown)})"

    def _attrs(self, attrs: Any) -> list[str]:
        """The printed attributes of an operator, as keyword arguments."""
        if attrs is None:
            return []
        typed = {"value"}  # this attribute may have any dtype, so its literals are printed with the dtype
        return [f"{f.name}={self.attr(getattr(attrs, f.name), f.name in typed)}" for f in fields(attrs)]

    def attr(self, value: Any, typed: bool = False) -> str:
        """Returns one attribute of an operator in Python syntax. With `typed`, an expression is printed with its dtypes, else as a dim."""
        if isinstance(value, Expr):
            return self.expr(value) if typed else self.dim(value)
        if isinstance(value, tuple):
            return f"[{', '.join(map(self.attr, value))}]"
        if isinstance(value, DType):
            return _dtype_text(value)
        if isinstance(value, str):
            return f'"{value}"'
        return repr(value)

    def _constant(self, node: g.Const, f: g.Function) -> str:
        """Returns the expression of a literal: inline, or by name if it is large."""
        if _is_large(node):
            return f'ops.constant(constants["{f.name}.{node.outs[0].name}"])'
        dtype = to_dtype(node.array.dtype)
        items = node.array.astype(np.float64).tolist() if dtype.is_float else node.array.tolist()
        return f"ops.constant({_items_text(items, dtype)}, dtype={_dtype_text(dtype)})"

    def _if(self, node: g.If, indent: str, f: g.Function) -> list[str]:
        """Returns the lines of an `If`, as Python's `if` and `else`."""
        outs = self.names(node.outs)
        lines = [f"{indent}if {self.name(node.cond)}:"]
        lines += self._body(node.then, indent + "    ", f, outs)
        lines.append(f"{indent}else:")
        return lines + self._body(node.orelse, indent + "    ", f, outs)

    def _body(self, body: g.Body, indent: str, f: g.Function, targets: str) -> list[str]:
        """The lines of a body; its results are assigned to `targets`."""
        lines = [line for n in body.nodes for line in self.node(n, indent, f)]
        if body.results:
            lines.append(f"{indent}{targets} = {self.names(body.results)}")
        return lines or [f"{indent}pass"]

    def _while(self, node: g.While, indent: str, f: g.Function) -> list[str]:
        """Returns the lines of a `While`, in the general form with `break`."""
        outs = self.names(node.outs)
        for params in (node.cond.params, node.body.params):
            self.values.update({p: self.values[o] for p, o in zip(params, node.outs, strict=True)})
        lines = [f"{indent}{outs} = {self.names(node.init)}", f"{indent}while True:"]
        inner = indent + "    "
        lines += [line for n in node.cond.nodes for line in self.node(n, inner, f)]
        lines += [f"{inner}if not {self.name(node.cond.results[0])}:", f"{inner}    break"]
        return lines + self._body(node.body, inner, f, outs)


def _checksum(array: np.ndarray[Any, Any]) -> int:
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


def _content(r: g.Require) -> tuple[Any, ...]:
    """The printed parts of a condition: everything except its source span."""
    return r.cond, r.message, r.values, r.help


def _dim_text(v: Var, relations: str = "") -> str:
    """Returns the declaration of a dim in Python syntax."""
    extra = ""
    if isinstance(v, Dim):
        extra += f", min={v.min}" if v.min else ""
        extra += f", max={v.max}" if v.max != DIM_MAX else ""
        extra += f", multiple_of={v.multiple_of}" if v.multiple_of != 1 else ""
    return f'dim("{v.name}"{extra}{relations})'


def _items_text(items: Any, dtype: DType) -> str:
    """Nested lists of numbers, each in the shortest form that parses back to the same value."""
    if isinstance(items, list):
        return f"[{', '.join(_items_text(i, dtype) for i in items)}]"
    return number_text(Literal(items, dtype))


def _dtype_text(d: DType) -> str:
    return "bool_" if d is bool_ else d.name
