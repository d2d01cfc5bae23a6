"""Pattern matching for external libraries: a subgraph that matches a graph function is replaced by one library call.

    @function
    def pattern(x: Tensor[f32, n, k], w: Tensor[f32, k, m]) -> Tensor[f32, n, m]:
        return ops.gelu(x @ w)

    pliant.register_library(pattern, "libfast.so:gelu_matmul")

A subgraph matches if it has the operators of the pattern (the operands of a sum or product in either order), its inputs have the dtype
and rank of the parameters, and no other node reads its intermediate values. `linear(x, w, b)` is also found as `x @ w.T + b`, and as
`x @ v + b`, whose `v.T` is then computed for the call. A dim of the pattern matches any dim, the same one everywhere; a number matches
itself. The symbol is called with the arguments in order, then with memory for the results (`runtime/foreign_calls.py`). Patterns are tried
in order of registration, each at every node from the last to the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from ..support.errors import Error
from ..support.record import dataclass
from ..support.source import caller_span
from ..sym.expr import Const as Number
from ..sym.expr import Expr, Var, free_vars, substitute
from ..sym.prove import prove_equal
from .node import Annotation, CallLibrary, Const, Function, Node, Op, Scalar, Tensor, Value, is_state, walk_nodes
from .operators import attr_exprs, map_attrs
from .ops.shape import PermuteAttrs
from .structural import canonical


@dataclass(frozen=True, slots=True)
class Pattern:
    """A subgraph to match, and the library symbol that replaces it. `when` gets the matched dims by name and may refuse the match."""

    function: Function
    symbol: str
    when: Callable[[dict[str, Expr]], bool] | None = None


REGISTERED: list[Pattern] = []
# Operators whose result has the same bits for either order of the operands (NaN payloads are not part of the semantics).
COMMUTATIVE = frozenset({"add", "mul", "minimum", "maximum", "equal", "not_equal", "logical_and", "logical_or", "logical_xor"})


def register_library(pattern: object, symbol: str, when: Callable[[dict[str, Expr]], bool] | None = None) -> Pattern:
    """Makes every later compilation replace subgraphs that match the graph function `pattern` by a call of `symbol`; returns the pattern.

    `when` gets the matched dims by name and may refuse. Raises if the pattern is none.
    """
    registered = Pattern(_checked(getattr(pattern, "graph", pattern)), symbol, when)
    REGISTERED.append(registered)
    return registered


def registered_text() -> str | None:
    """The registered patterns as a part of the cache key; None if one has a `when`: Python code has no key, so nothing is cached."""
    if any(p.when is not None for p in REGISTERED):
        return None
    return repr([(canonical(p.function), p.symbol) for p in REGISTERED]) if REGISTERED else ""


def unregister_library(pattern: Pattern) -> None:
    """Removes a pattern that `register_library` returned."""
    REGISTERED.remove(pattern)


def _checked(pattern: object) -> Function:
    """Returns the pattern; raises if it has nodes other than operators and literals, or returns a parameter."""
    if not isinstance(pattern, Function):
        raise Error("register_library: the pattern is a function decorated with @function", where=caller_span())
    other = next((n for n in walk_nodes(pattern.nodes) if not isinstance(n, Op | Const)), None)
    if other is not None or not any(isinstance(n, Op) for n in pattern.nodes):
        what = f"register_library: `{pattern.name}` is no pattern: it has " + (f"a {type(other).__name__}" if other else "no operators")
        raise Error(what, where=caller_span(), help="a pattern is made of operators and literals")
    computed = {v for n in pattern.nodes if isinstance(n, Op) for v in n.outs}
    if not all(r in computed for r in pattern.results):
        raise Error(f"register_library: a result of `{pattern.name}` is one of its parameters", where=caller_span())
    return pattern


@dataclass(slots=True)
class Match:
    """A match of a pattern: its values and dims mapped to those of the program, the nodes to replace, and nodes to compute before the call.

    The last are transposes of matrices that the program multiplies by as they are, by matrix.
    """

    values: dict[Value, Value] = field(default_factory=dict)
    dims: dict[Var, Expr] = field(default_factory=dict)
    nodes: dict[Node, None] = field(default_factory=dict)
    turned: dict[Value, Op] = field(default_factory=dict)

    def copy(self) -> Match:
        """Returns a match that can be extended without changing this one."""
        return Match(dict(self.values), dict(self.dims), dict(self.nodes), dict(self.turned))


def find(pattern: Function, root: Op, makers: dict[Value, Node]) -> Match | None:
    """Returns the match of a pattern whose first result `root` computes, or None; all parameters and results must be matched."""
    match = Match()
    pattern_makers = {v: n for n in pattern.nodes for v in n.outs}
    first = pattern_makers[pattern.results[0]]
    if not _node(first, root, pattern_makers, makers, match):
        return None
    if any(r not in match.values for r in pattern.results) or any(p not in match.values for p in pattern.params):
        return None
    return match


def _node(wanted: Node, found: Node | None, made: dict[Value, Node], makers: dict[Value, Node], match: Match) -> bool:
    """True if a node of the pattern matches a node of the program; extends `match`."""
    if isinstance(wanted, Const):
        return isinstance(found, Const) and _same_literal(wanted, found)
    if not isinstance(wanted, Op) or not isinstance(found, Op):
        return False
    if wanted.op == "linear" and found.op != "linear":
        return _written_out(wanted, found, made, makers, match)
    if wanted.op != found.op or len(wanted.args) != len(found.args) or not _attrs(wanted, found, match):
        return False
    if not _outs(wanted, found, match):
        return False
    orders = [found.args, found.args[::-1]] if wanted.op in COMMUTATIVE else [found.args]
    return any(_tried(list(zip(wanted.args, args, strict=True)), made, makers, match) for args in orders)


def _outs(wanted: Op, found: Op, match: Match) -> bool:
    """Records in `match` that a node matches, and what it computes; returns False if the pattern has another value there already."""
    match.nodes[found] = None
    return all(match.values.setdefault(w, f) is f for w, f in zip(wanted.outs, found.outs, strict=True))


def _tried(pairs: Sequence[tuple[Value, Value]], made: dict[Value, Node], makers: dict[Value, Node], match: Match) -> bool:
    """Returns True if all pairs of a value of the pattern and one of the program match; `match` is extended only then."""
    attempt = match.copy()
    if not all(_value(w, f, made, makers, attempt) for w, f in pairs):
        return False
    match.values, match.dims, match.nodes, match.turned = attempt.values, attempt.dims, attempt.nodes, attempt.turned
    return True


def _written_out(wanted: Op, found: Op, made: dict[Value, Node], makers: dict[Value, Node], match: Match) -> bool:
    """Returns True if `linear(x, w, b)` of the pattern is written as a matmul and a sum in the program, the sum in either order.

    Extends `match`. Without a bias in the pattern, this is the matmul alone.
    """
    if len(wanted.args) == 2:
        return _product(wanted, found, (), made, makers, match) and _outs(wanted, found, match)
    if found.op != "add" or wanted.outs[0].tensor.dtype is not found.outs[0].tensor.dtype:
        return False
    for product, bias in (found.args, found.args[::-1]):
        maker = makers.get(product)
        if isinstance(maker, Op) and _product(wanted, maker, (bias,), made, makers, match):
            match.nodes[maker] = None
            return _outs(wanted, found, match)
    return False


def _product(wanted: Op, found: Op, bias: tuple[Value, ...], made: dict[Value, Node], makers: dict[Value, Node], match: Match) -> bool:
    """Returns True if `found` is a matmul whose operands and the bias match the arguments of `linear`.

    Its matrix is `w.T` if it is transposed, by the matmul or by a permute; else `w` is its transpose, to compute before the call. Extends
    `match`, also by that permute.
    """
    if found.op != "matmul" or getattr(found.attrs, "transpose_a", False) or len(found.args[1].tensor.shape) != 2:
        return False
    x, matrix = found.args
    permute = makers.get(matrix)
    if getattr(found.attrs, "transpose_b", False):
        return _tried(list(zip(wanted.args, (x, matrix, *bias), strict=True)), made, makers, match)
    if isinstance(permute, Op) and permute.op == "permute" and permute.attrs.axes == (1, 0):
        if not _tried(list(zip(wanted.args, (x, permute.args[0], *bias), strict=True)), made, makers, match):
            return False
        match.nodes[permute] = None
        return True
    turned = match.turned.get(matrix) or _transpose_of(matrix, found)
    if not _tried(list(zip(wanted.args, (x, turned.outs[0], *bias), strict=True)), made, makers, match):
        return False
    match.turned[matrix] = turned
    return True


def _transpose_of(matrix: Value, reader: Op) -> Op:
    """Returns a new node that transposes a matrix, for the place of `reader`."""
    out = Value(f"{matrix.name}_turned", Tensor(matrix.tensor.dtype, matrix.tensor.shape[::-1]))
    return Op(outs=(out,), op="permute", args=(matrix,), attrs=PermuteAttrs((1, 0)), origin=reader.origin, span=reader.span)


def _value(wanted: Value, found: Value, made: dict[Value, Node], makers: dict[Value, Node], match: Match) -> bool:
    """True if a value of the pattern matches a value of the program, together with the nodes that compute it."""
    if wanted in match.values:
        return match.values[wanted] is found
    if wanted in made:
        return _node(made[wanted], makers.get(found), made, makers, match)
    match.values[wanted] = found
    return _annotation(wanted.annotation, found.annotation, match)


def _annotation(wanted: Annotation, found: Annotation, match: Match) -> bool:
    """True if an argument has the dtype, rank and dims that a parameter of the pattern demands; state and strides never match."""
    if isinstance(wanted, Scalar) and isinstance(found, Scalar):
        return wanted.dtype is found.dtype
    if not isinstance(wanted, Tensor) or not isinstance(found, Tensor) or is_state(Value("", found)) or found.strides is not None:
        return False
    if wanted.dtype is not found.dtype or len(wanted.shape) != len(found.shape):
        return False
    return all(_dim(w, f, match) for w, f in zip(wanted.shape, found.shape, strict=True))


def _dim(wanted: Expr, found: Expr, match: Match) -> bool:
    """True if a dim of the pattern matches: a variable is bound at its first use, a number must be equal."""
    if isinstance(wanted, Var):
        return prove_equal(match.dims.setdefault(wanted, found), found)
    if isinstance(wanted, Number):
        return wanted is found
    return free_vars(wanted) <= set(match.dims) and prove_equal(substitute(wanted, match.dims), found)


def _attrs(wanted: Op, found: Op, match: Match) -> bool:
    """True if the attributes agree: expressions match like dims, everything else must be equal."""
    pairs = zip(attr_exprs(wanted.attrs), attr_exprs(found.attrs), strict=False)
    plain = [map_attrs(n.attrs, lambda e: 0) for n in (wanted, found)]
    return repr(plain[0]) == repr(plain[1]) and all(_dim(w, f, match) for w, f in pairs)


def _same_literal(a: Const, b: Const) -> bool:
    """True if two literals have the same dtype, shape and bytes."""
    return a.array.dtype == b.array.dtype and a.array.shape == b.array.shape and a.array.tobytes() == b.array.tobytes()


def call_of(pattern: Pattern, match: Match, nodes: Sequence[Node]) -> CallLibrary:
    """The library call that replaces the matched `nodes`, which are in program order; it makes all of their run-time checks."""
    args = tuple(match.values[p] for p in pattern.function.params)
    outs = tuple(match.values[r] for r in pattern.function.results)
    checks = {r.cond: r for n in nodes for r in n.requires}
    origin = tuple(dict.fromkeys(o for n in nodes for o in n.origin))
    return CallLibrary(outs=outs, symbol=pattern.symbol, args=args, requires=tuple(checks.values()), origin=origin, span=nodes[-1].span)
