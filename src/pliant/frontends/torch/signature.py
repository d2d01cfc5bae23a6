"""The parameters and results of an exported program: dims of the inputs, weights, and how calls are written (pytrees).

Each leaf of the inputs that is a tensor becomes a parameter; symbols of torch become dims with the user's names; guards become relations,
narrower dims or run-time conditions.
"""

from __future__ import annotations

import ast
import os
from typing import Any

from ...graph.node import Tensor
from ...support.errors import UnsupportedError
from ...support.names import identifier, unused_name
from ...sym.expr import DIM_MAX, Const, Dim, Eq, Expr, Le, Lt, Ne, const, free_vars, substitute
from ...sym.simplify import simplify
from .dtypes import dtype_of
from .export import Names
from .importer import Importer
from .symbols import guard, translated, wide


class Signature:
    """The inputs and outputs of an ExportedProgram as parameters and results of a graph function.

    `dims` are the dims of torch's symbols, `conditions` what guards demand of them besides their bounds. Raises UnsupportedError for guards
    that are not supported or contradict each other.
    """

    def __init__(self, program: Any, names: Names, texts: list[str], ones: frozenset[str] = frozenset()) -> None:
        self.program, self.names, self.texts = program, names, texts
        self.ones = ones  # names of dims that are fixed to 1, to see whether the program holds for it
        self.placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
        specs = program.graph_signature.input_specs
        self.inputs = [(n, s) for n, s in zip(self.placeholders, specs, strict=True) if s.kind.name == "USER_INPUT"]
        self.dims: dict[str, Any] = {}  # symbol of torch -> dim, or its value
        self.assumed: set[str] = set()  # names of dims whose lower bound 2 only tracing assumed
        self.conditions: list[Expr] = []
        self._values: dict[Any, Expr] = {}  # dims that guards narrowed or unified -> what they are now
        self._make_dims()

    # Dims.

    def _make_dims(self) -> None:
        """Makes the dims of all symbols in the shapes of the inputs; guards that narrow or unify them are taken in.

        A dim has the user's name or one made of its input and axis. Symbols to which the user gave the same name share one dim.
        """
        places: dict[str, tuple[int, int]] = {}
        for leaf, (node, _) in enumerate(self.inputs):
            for axis, n in enumerate(getattr(node.meta["val"], "shape", ())):
                for symbol in getattr(getattr(getattr(n, "node", None), "expr", None), "free_symbols", ()):
                    if (leaf, axis) in self.names or symbol.name not in places:
                        places.setdefault(symbol.name, (leaf, axis))
                        if (leaf, axis) in self.names and places[symbol.name] not in self.names:
                            places[symbol.name] = (leaf, axis)
        ranges = {s.name: r for s, r in self.program.range_constraints.items()}
        taken: set[str] = set()
        given: dict[str, Any] = {}
        for symbol, (leaf, axis) in places.items():
            wanted = self.names.get((leaf, axis))
            if wanted is not None and wanted in given:  # torch found no reason that they are equal; the user says so
                self.dims[symbol] = given[wanted]
                continue
            name = unused_name(wanted or identifier(f"{self.inputs[leaf][1].arg.name}_{axis}"), taken)
            self.dims[symbol] = self._dim(name, ranges.get(symbol))
            if wanted is not None:
                given[wanted] = self.dims[symbol]
        self._take_guards()
        for dim in {e for e in self.dims.values() if isinstance(e, Dim) and e.name in self.ones}:
            self._replace(dim, const(1))

    def _dim(self, name: str, allowed: Any) -> Any:
        """Returns a dim with the bounds that torch allows, 0 to DIM_MAX without any; records it as `assumed` if the lower one is 2."""
        low, high = 0, DIM_MAX
        if allowed is not None:
            low = max(0, int(allowed.lower)) if allowed.lower.is_Integer else 0
            high = min(DIM_MAX, int(allowed.upper)) if allowed.upper.is_Integer else DIM_MAX
        if low == 2:
            self.assumed.add(name)
        return Dim(name, low, high)

    def _take_guards(self) -> None:
        """Narrows and unifies dims by the guards of the export; the others become conditions.

        A dim that only torch's decomposition wants to differ from 1 is recorded as `assumed`. Raises UnsupportedError for guards about
        anything but sizes.
        """
        sizes = self._sizes()
        incidental = self._incidental()
        for text in getattr(self.program, "_guards_code", None) or ():
            for condition in guard(text, sizes):
                dim = _not_one(condition)
                if dim is not None and dim.name in incidental:
                    self._replace(dim, Dim(dim.name, max(dim.min, 2), dim.max))
                    self.assumed.add(dim.name)
                else:
                    self._take(condition)
        for k, c in enumerate(self.conditions):
            self.conditions[k] = simplify(c)

    def _incidental(self) -> set[str]:
        """Returns the names of dims that are not 1 because of how torch decomposes an operator, and not because the model asks."""
        import torch

        inside = os.path.dirname(torch.__file__)
        environments = {id(e): e for n, _ in self.inputs if (e := getattr(getattr(n.meta["val"], "fake_mode", None), "shape_env", None))}
        found = set()
        for g in (g for e in environments.values() for g in e.guards):
            file = getattr(getattr(g.sloc, "framework_loc", None), "filename", "")
            if type(g.expr).__name__ in ("Unequality", "StrictGreaterThan", "GreaterThan") and file.startswith(inside):
                found |= {self.dims[s.name].name for s in g.expr.free_symbols if isinstance(self.dims.get(s.name), Dim)}
        return found

    def _sizes(self) -> dict[str, Any]:
        """Returns the dims of the inputs by their text in guards."""
        sizes = {}
        for leaf, (node, _) in enumerate(self.inputs):
            for axis, n in enumerate(self.shape(node)):
                for text in {self.texts[leaf], f"L[{node.name!r}]"} if leaf < len(self.texts) else {f"L[{node.name!r}]"}:
                    sizes[ast.unparse(ast.parse(f"{text}.size()[{axis}]", mode="eval").body)] = n
        return sizes

    def _take(self, condition: Expr) -> None:
        """Takes in a condition: it replaces or narrows a dim, or is kept as a condition if that is not possible.

        Raises UnsupportedError if it is known to be false.
        """
        condition = simplify(substitute(condition, self._replaced))
        if isinstance(condition, Const):
            if not condition.value:
                raise UnsupportedError("torch: the guards of the export contradict each other")
            return
        a, b = condition.args if len(condition.args) == 2 else (condition, condition)
        dim, other = (a, b) if isinstance(a, Dim) else (b, a)
        if not isinstance(dim, Dim) or dim in free_vars(other):
            self.conditions.append(condition)
        elif isinstance(condition, Eq):
            self._replace(dim, other)
        elif isinstance(other, Const):
            self._narrow(condition, dim, int(other.value), dim is a)
        else:
            self.conditions.append(condition)

    def _narrow(self, condition: Expr, dim: Dim, value: int, left: bool) -> None:
        """Takes in a comparison of a dim with a number, the dim being its left side (`left`) or the right one.

        It narrows the dim's bounds; a number that an inequality excludes within them becomes a condition.
        """
        low, high = dim.min, dim.max
        strict = int(isinstance(condition, Lt))
        if isinstance(condition, Ne):  # a branch on a size of 0 or 1, which the example did not have
            low = value + 1 if value <= low + 1 else low
            if low == dim.min:
                self.conditions.append(condition)
        elif left:
            high = min(high, value - strict)
        else:
            low = max(low, value + strict)
        self._replace(dim, dim if (low, high) == (dim.min, dim.max) else Dim(dim.name, low, high))

    @property
    def _replaced(self) -> dict[Any, Expr]:
        """The dims that were replaced, with what they are now."""
        return self._values

    def _replace(self, dim: Any, value: Expr) -> None:
        """Replaces a dim by an expression everywhere: in the dims of symbols, in conditions, and in what replaced others."""
        if value is dim:
            return
        values = self._replaced
        for old, current in list(values.items()):
            values[old] = substitute(current, {dim: value})
        values[dim] = value
        self.dims = {s: substitute(wide(e), {dim: value}) for s, e in self.dims.items()}
        self.conditions = [simplify(substitute(c, {dim: value})) for c in self.conditions]

    def shape(self, node: Any) -> tuple[Expr, ...]:
        """Returns the extents of an input over our dims."""
        shape = getattr(node.meta["val"], "shape", ())
        return tuple(const(n) if isinstance(n, int) else wide(translated(n.node.expr, self.dims)) for n in shape)

    # Parameters.

    def declare(self, importer: Importer) -> None:
        """Adds the parameters to the importer's function, and the weights as literals; states the conditions of the guards.

        Inputs that are neither tensors nor sizes are constants. Raises UnsupportedError for an input that is a dynamic integer or of
        another kind.
        """
        import torch

        for node, spec in zip(self.placeholders, self.program.graph_signature.input_specs, strict=True):
            kind, val = spec.kind.name, node.meta.get("val")
            if kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
                importer.values[node] = importer.literal(self._weight(spec), spec.target)
            elif kind != "USER_INPUT":
                raise UnsupportedError(f"torch: inputs that are {kind.lower()} are not supported")
            elif isinstance(val, torch.Tensor):
                annotation = Tensor(dtype_of(val.dtype), self.shape(node))
                importer.values[node] = importer.builder.param(identifier(node.name), annotation)
            elif isinstance(val, torch.SymInt):
                raise UnsupportedError(f"torch: the input `{node.name}` is a dynamic integer, which is not supported")
            else:
                importer.values[node] = getattr(spec.arg, "value", val)
        for condition in self.conditions:
            text = f"the module was exported for sizes with {condition}"
            importer.builder.require(condition, text, (), "")
        taken = [node for node, _ in self.inputs if isinstance(node.meta.get("val"), torch.Tensor)]
        if self.conditions and taken:  # a match_cast stays with its checks, whatever passes make of other nodes
            value = importer.values[taken[0]]
            importer.values[taken[0]] = importer.builder.match_cast(value, value.annotation)

    def _weight(self, spec: Any) -> Any:
        """Returns the tensor of a parameter, buffer or constant of the program."""
        target = spec.target
        if spec.kind.name == "PARAMETER" or (spec.kind.name == "BUFFER" and target in self.program.state_dict):
            return self.program.state_dict[target]
        return self.program.constants[target]

    # Results.

    def results(self, found: list[Any]) -> list[tuple[Any, Any]]:
        """Returns the outputs, each with its specification.

        Raises UnsupportedError if the module writes to buffers or inputs.
        """
        specs = self.program.graph_signature.output_specs
        for spec in specs:
            if spec.kind.name not in ("USER_OUTPUT",):
                what = f"`{spec.target}`" if spec.target else "its inputs"
                raise UnsupportedError(
                    f"torch: the module writes to {what}, which is not supported", help="return the new value, or call model.eval()"
                )
        return list(zip(found, specs, strict=True))


def _not_one(condition: Expr) -> Dim | None:
    """Returns the dim of a condition that says that it is not 1: `n != 1`, `1 < n` or `2 <= n`; None for other conditions."""
    a, b = condition.args if len(condition.args) == 2 else (None, None)
    if isinstance(condition, Ne) and isinstance(a, Dim) and b is const(1):
        return a
    least = const(1) if isinstance(condition, Lt) else const(2)
    return b if isinstance(condition, Lt | Le) and a is least and isinstance(b, Dim) else None
