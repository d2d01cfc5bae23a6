"""Program: a graph function with everything it calls, which can be printed as text, edited and parsed back.

    p = pliant.parse(str(p))       # structurally the same

The text is a Python file: dims, then kernels, then functions, with the entry last.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .graph import node as g
from .graph.node import Callee, Function, walk_nodes
from .loop.buffer import Buffer
from .loop.stmt import Func
from .lower.callee import callee_of, func_of, given_by
from .support.errors import Error, ShapeError
from .support.names import unused_name
from .support.resolve import span_of
from .support.source import Span

if TYPE_CHECKING:
    from .loop.analysis.proof import Access
from .sym.expr import TRUE, Expr, free_vars
from .sym.relations import conditions


@dataclass(frozen=True, slots=True)
class Program:
    """An entry function with all that it calls; `kernel` is set if the program was made from one loop program, and is printed then."""

    entry: Function
    kernel: Func | None = None

    @staticmethod
    def of(entry: Function) -> Program:
        """Returns the program whose entry is this graph function."""
        return Program(entry)

    @staticmethod
    def of_kernel(func: Func) -> Program:
        """Returns a program that calls one loop program: `out` parameters become results, `inout` ones state.

        Raises ShapeError if the arguments do not define a symbol of the loop program.
        """
        _check_dims(func)
        params: list[g.Value] = []
        outs: list[g.Value] = []
        for p in callee_of(func).params:
            if p.shape is None:
                params.append(g.Value(p.name, g.Scalar(p.dtype)))
                continue
            if p.role != "out":
                params.append(g.Value(p.name, g.Tensor(p.dtype, p.shape, p.role == "inout", p.strides)))
            if p.role != "in":
                outs.append(g.Value(p.name, g.Tensor(p.dtype, p.shape, p.role == "inout", p.strides if p.role == "inout" else None)))
        dims, requires = _symbols(func, params)
        call = g.CallLoop(outs=tuple(outs), requires=requires, callee=callee_of(func), args=tuple(params), dims=dims, span=func.span)
        stated = [c for v in func.symbols for c in conditions(v) if free_vars(c) <= set(func.symbols)]
        attrs = {"outputs": tuple(o.name for o in outs), **({"relations": tuple(map(g.relation, stated))} if stated else {})}
        entry = Function(func.name, tuple(params), (call,), tuple(outs), attrs, func.span)
        return Program(entry, func)

    def with_dims(self, dims: Mapping[str, Any]) -> Program:
        """Returns the program with dims set, narrowed or unified: `{"batch": 1, "n": (1, 2048), "w": "h"}`.

        Dims of equal names get unique ones first.
        """
        from .graph.passes.bind_dims import bind_dims
        from .graph.passes.unique_dims import unique_dims

        return Program(bind_dims(unique_dims(self.entry), dims))

    @property
    def kernels(self) -> tuple[Func, ...]:
        """The loop programs that the graph calls, each once; not those that loop programs call."""
        return tuple({func_of(c): None for c in callees(self.entry)})

    @property
    def constants(self) -> tuple[Any, ...]:
        """The arrays of the literal tensors in order of appearance, with repetitions; code refers to them by index."""
        return tuple(_constants(self.entry))

    @property
    def functions(self) -> tuple[Any, ...]:
        """The Python functions that are called, in order of appearance; code refers to them by index."""
        from .lower.ops.foreign_calls import host_functions

        return tuple(host_functions(self.entry))

    @property
    def named_constants(self) -> dict[str, Any]:
        """The literal tensors that are too large to print, by their names in the text."""
        from .graph.printer import constants_of

        return constants_of(self.entry)

    def unproved_accesses(self) -> list[Access]:
        """Returns the memory accesses of all loop programs, including those of operators, that cannot be proven in bounds."""
        from .graph.passes.inline_functions import inline_functions
        from .loop.analysis.proof import unproved_accesses
        from .lower.ops.lower_ops import lower_ops

        nodes = g.walk_nodes(lower_ops(inline_functions(self.entry)).nodes)
        calls = {(func_of(n.callee), tuple(r.cond for r in n.requires)): n.span for n in nodes if isinstance(n, g.CallLoop)}
        placed = [(func if func.span is not None else func.with_(span=span), given) for (func, given), span in calls.items()]
        return [a for func, given in placed for a in unproved_accesses(func, given)]

    @staticmethod
    def parse(text: str, file: str = "<text>", constants: Mapping[str, Any] | None = None) -> Program:
        """Parses printed text without executing it; the entry is the last function (the last kernel if there is no function).

        Raises Error for text that is no valid program.
        """
        _check_text(text, file)
        try:
            return _read(text, file, constants)
        except RecursionError:
            raise _too_deep(Span(file, 1, 0, 1, (text.splitlines() or [""])[0])) from None

    def edited(self, text: str) -> Program:
        """Returns the program of an edited text of this one, with the literal tensors that the text names; raises as `parse` does.

        How its calls are written (trees of tensors) stays, if it has the same arguments and as many results.
        """
        program = Program.parse(text, "<edited>", self.named_constants)
        calling, new = self.entry.attrs.get("calling"), program.entry
        same = [p.name for p in new.params] == [p.name for p in self.entry.params] and len(new.results) == len(self.entry.results)
        return program if calling is None or not same else Program(new.with_(attrs={**new.attrs, "calling": calling}))

    def __str__(self) -> str:
        from .graph.printer import print_function
        from .loop.printer import print_func

        if self.kernel is not None:
            return print_func(self.kernel)
        entry = unique_names(self.entry)
        kernels = dict.fromkeys(func_of(c) for c in callees(entry))
        return "\n\n".join([*map(print_func, kernels), print_function(entry)])


def _verify_called(func: Func, functions: Iterable[Function], error: Error) -> None:
    """Raises `error` of a kernel that is invalid by itself, unless every call checks conditions that make it valid."""
    from .loop.verify import verify_written

    calls = [n for f in functions for n in walk_nodes(f.nodes) if isinstance(n, g.CallLoop) and n.callee.program is func]
    conditions = dict.fromkeys(map(given_by, calls))
    if not conditions or TRUE in conditions:
        raise error
    for condition in conditions:
        verify_written(func, condition)


def _read(text: str, file: str, constants: Mapping[str, Any] | None) -> Program:
    """Parses and verifies a program in its text form; raises the first Error."""
    from .graph.parse import parse_module as parse_functions
    from .graph.verify import verify as verify_graph
    from .loop.parse import parse_module as parse_kernels
    from .loop.verify import verify_written

    kernels = parse_kernels(text, file)
    doubtful: dict[Func, Error] = {}
    for func in kernels.values():
        try:
            verify_written(func)
        except Error as error:
            doubtful[func] = error
    try:
        functions = parse_functions(text, {name: callee_of(f) for name, f in kernels.items()}, file, constants=constants)
    except Error as error:
        raise next(iter(doubtful.values()), error) from None
    for func, reason in doubtful.items():
        _verify_called(func, functions.values(), reason)
    for function in functions.values():
        verify_graph(function)
    if functions:
        return Program(list(functions.values())[-1])
    if kernels:
        return Program.of_kernel(list(kernels.values())[-1])
    first = Span(file, 1, 0, 1, (text.splitlines() or [""])[0])
    raise Error("there is no function in this text", where=first, help="a program has a @kernel or a @function")


MAX_DEPTH = 250  # levels of a syntax tree: the compiler's recursive walks stay well within Python's recursion limit


def _check_text(text: str, file: str) -> None:
    """Raises Error for text that cannot be encoded, is not Python, or is nested too deeply; syntax errors are left to the parser."""
    lines = text.splitlines(keepends=True)
    try:
        text.encode()
        tree = ast.parse(text)
    except UnicodeEncodeError as problem:
        row = text.count("\n", 0, problem.start)
        line = lines[row] if row < len(lines) else ""
        raise Error(
            f"character {problem.start} of this text cannot be encoded", where=Span(file, row + 1, 0, 1, ascii(line)[1:-1])
        ) from None
    except SyntaxError:
        return  # the parser reports it with its position
    except ValueError as problem:
        raise Error(f"not Python: {problem}", where=Span(file, 1, 0, 1, lines[0] if lines else "")) from None
    except (RecursionError, MemoryError):
        raise _too_deep(Span(file, 1, 0, 1, lines[0])) from None
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        level = [x for node in level for x in ast.iter_child_nodes(node)]
    for node in level:
        if isinstance(node, ast.stmt | ast.expr):
            raise _too_deep(span_of(node, file, lines))


def _too_deep(where: Span) -> Error:
    return Error("this program is nested too deeply", where=where, facts=[f"more than {MAX_DEPTH} levels"], help="give parts of it names")


def _symbols(func: Func, params: Sequence[g.Value]) -> tuple[tuple[Expr, ...], tuple[g.Require, ...]]:
    """Returns the values of a kernel's symbols (themselves, except free strides of outputs, which are deduced), and its requirements."""
    if all(v in _given(func) for v in func.symbols):
        return func.symbols, ()
    from .graph.deduce import Deduction, deduce_call

    d = Deduction(func.name, tuple(params), span=func.span)
    dims = deduce_call(d, callee_of(func))[1]
    return dims, tuple(d.requires)


def _given(func: Func) -> set[Expr]:
    """Returns the dims and strides that a kernel's arguments (not its outputs) determine."""
    inputs = [p.value for p in func.params if p.role != "out" and isinstance(p.value, Buffer)]
    return {e for b in inputs for e in (*b.shape, *(b.strides or ()))}


def _check_dims(func: Func) -> None:
    """Raises ShapeError if the arguments do not define a symbol: the sizes of outputs would be unknown."""
    known = _given(func) | {e for b in func.buffers for e in b.strides or ()}
    for v in func.symbols:
        if v not in known:
            user = next(b for b in func.buffers if any(v in free_vars(e) for e in (*b.shape, *(b.strides or ()))))
            raise ShapeError(
                f"dim `{v.name}` of `{user.name}` is not known from the arguments of `{func.name}`",
                where=func.span,
                facts=[f"`{user.name}` is {user}", "a dim is known where it stands alone as a dimension of an argument"],
                help=f"add an argument that has `{v.name}` as a dimension of its own",
            )


def _constants(function: Function) -> Iterator[Any]:
    from .graph.stand_in import known

    for n in g.walk_nodes(function.nodes):
        if isinstance(n, g.Const):
            yield known(n.outs[0].name, n.array)
        elif isinstance(n, g.CallFunction):
            yield from _constants(n.function)


def unique_names(function: Function) -> Function:
    """Returns the function with loop programs renamed whose name another one has already, or is a reserved word of the language."""
    from .loop.printer import RESERVED

    taken: set[str] = set(RESERVED)
    renamed: dict[object, Callee] = {}

    def rename(c: Callee) -> Callee:
        if c.program not in renamed:
            name = unused_name(c.name, taken)
            renamed[c.program] = c if name == c.name else callee_of(func_of(c).with_(name=name))
        return renamed[c.program]

    visited: dict[Function, Function] = {}

    def visit(f: Function) -> Function:
        if f not in visited:
            visited[f] = f.with_(nodes=tuple(node(n) for n in f.nodes))
        return visited[f]

    def body(b: g.Body) -> g.Body:
        return g.Body(b.params, tuple(node(n) for n in b.nodes), b.results)

    def node(n: g.Node) -> g.Node:
        match n:
            case g.CallLoop():
                return n.with_(callee=rename(n.callee))
            case g.CallFunction():
                return n.with_(function=visit(n.function))
            case g.If():
                return n.with_(then=body(n.then), orelse=body(n.orelse))
            case g.While():
                return n.with_(cond=body(n.cond), body=body(n.body))
        return n

    return visit(function)


def callees(function: Function) -> list[Callee]:
    """Returns the loop programs that a function and the functions it calls use, in order of first use."""
    unique: dict[Callee, None] = {}
    for n in g.walk_nodes(function.nodes):
        if isinstance(n, g.CallLoop):
            unique.setdefault(n.callee)
        elif isinstance(n, g.CallFunction):
            unique.update(dict.fromkeys(callees(n.function)))
    return list(unique)
