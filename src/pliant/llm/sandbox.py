"""A Jinja sandbox for untrusted chat templates: the immutable sandbox of Jinja with an allowlist and a budget of time, steps and text.

Chat templates are programs that come with model files. They see only plain data (strings, numbers, lists, dicts), may use only the methods
and filters listed here, and are stopped if they run too long or produce too much. To ensure this, every loop iteration, call, filter,
operator and piece of output is charged to the budget. An operation that could produce a large result is charged before it runs. A container
is charged for all of its contents, as often as they occur in it, so that no small object becomes large when it is written.

    environment().from_string("{{ 'x' * 10**9 }}") ... raises Exceeded
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import cache, wraps
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_context
from jinja2.visitor import NodeTransformer

from ..support.context import assigned
from ..support.record import dataclass

MAX_INTEGER_BITS = 4096  # far above any real use; arithmetic on larger integers takes time that the budget cannot interrupt
_STRING = """
capitalize count endswith find format index isalnum isalpha isascii isdecimal isdigit islower isnumeric isspace istitle isupper join lower
lstrip partition removeprefix removesuffix replace rfind rindex rpartition rsplit rstrip split splitlines startswith strip swapcase title
upper
"""
_LOOP = "index index0 revindex revindex0 first last length previtem nextitem depth depth0 cycle changed"
_METHODS: list[tuple[type, frozenset[str]]] = [
    (str, frozenset(_STRING.split())),
    (dict, frozenset(("get", "items", "keys", "values"))),
    (list, frozenset(("count", "index"))),
    (tuple, frozenset(("count", "index"))),
    (LoopContext, frozenset(_LOOP.split())),
]
_FILTERS = """
abs capitalize count d default dictsort e escape first float forceescape groupby indent int items join last length list lower map max min
reject rejectattr replace reverse round safe select selectattr sort string sum title trim truncate unique upper wordcount
"""


class Exceeded(Exception):
    """Raised when a template exceeds its budget."""


class Refused(Exception):
    """Raised when a template rejects a conversation (`raise_exception`)."""


@dataclass
class Budget:
    """The remaining budget of a template: CPU time, steps, characters in total, and characters of a single result (`at_once`)."""

    seconds: float
    characters: int
    at_once: int
    steps: int = 2_000_000

    def __post_init__(self) -> None:
        self.seconds += time.thread_time()

    def step(self, size: int = 0) -> None:
        """Charges one step and the size of its result; raises Exceeded if the budget is used up."""
        self.steps -= 1
        self.characters -= size
        if size > self.at_once or self.characters < 0:
            raise Exceeded("it makes too much text")
        if self.steps < 0 or time.thread_time() > self.seconds:
            raise Exceeded("it runs too long")


_budget: ContextVar[Budget] = ContextVar("_budget")


def spending(budget: Budget) -> AbstractContextManager[None]:
    """Context manager: applies a budget to all templates that run inside of it."""
    return assigned(_budget, budget)


def weigh(value: Any) -> Any:
    """Charges a value by its size (strings by length, containers by contents) and returns it; raises Exceeded for a huge integer."""
    budget = _budget.get()
    if isinstance(value, str):
        budget.step(len(value))
    elif isinstance(value, int):
        if value.bit_length() > MAX_INTEGER_BITS:
            raise Exceeded("it makes too large a number")
    elif isinstance(value, list | tuple | dict):
        budget.step(_weight(value, budget.at_once))
    return value


def text_of(value: Any) -> str:
    """Returns the text of plain data, charged before it is created; raises SecurityError for other objects."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool | int | float | Undefined):
        return str(weigh(value))
    if isinstance(value, list | tuple | dict):
        _budget.get().step(_weight(value, _budget.get().at_once, plain=True))
        return str(value)
    raise SecurityError(f"a {type(value).__name__} cannot be written")


def _weight(value: Any, limit: int, plain: bool = False) -> int:
    """Returns the size of a container's contents; stops counting above `limit`. With `plain`, raises for anything but plain data."""
    total, left = 0, [value]
    while left:
        item = left.pop()
        total += 8 + (len(item) if isinstance(item, str | list | tuple | dict) else 0)
        if total > limit:
            break
        if isinstance(item, dict):
            left += item.keys()
            left += item.values()
        elif isinstance(item, list | tuple):
            left += item
        elif plain and not (item is None or isinstance(item, str | bool | int | float | Undefined)):
            raise SecurityError(f"a {type(item).__name__} cannot be written")
    return total


class _Guard(NodeTransformer):
    """Rewrites a template's syntax tree so that loops, output, concatenation and container literals are charged to the budget."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        step = nodes.ExprStmt(_filtered(nodes.Const(None), "_step"), lineno=node.lineno)
        node.body.insert(0, step)
        return node

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:
        return nodes.Const(node.data, lineno=node.lineno)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "_concatenated")

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "_weighed") if isinstance(node.arg, nodes.Slice) else node

    def _container(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        return node if getattr(node, "ctx", "load") != "load" or not node.items else _filtered(node, "_weighed")

    visit_List = visit_Tuple = visit_Dict = _container


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class _Generation(Extension):
    """The Jinja tag `{% generation %}`, which marks the model's text for training; here it renders its body."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Parses the tag; returns the nodes of its body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Environment(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox with allowlists of attributes, filters and calls, charged to the budget."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "**", "%"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            finalize=_finalize,
            extensions=[LoopControlExtension, _Generation],
            cache_size=0,
        )
        known = {name: FILTERS[name] for name in _FILTERS.split()}
        ours = {"tojson": _tojson, "indent": _indent, "join": _join, "replace": _replace, "string": text_of, "sum": _sum, "round": _round}
        guarded = {name: _guarded(function) for name, function in {**known, **ours}.items()}
        self.filters = {**guarded, "_step": _step, "_concatenated": _concatenated, "_weighed": _weighed}
        self.globals = {name: self.globals[name] for name in ("range", "dict", "namespace")}
        self.globals["raise_exception"] = _raise

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = _Guard().visit(super()._parse(source, name, filename))
        assert isinstance(tree, nodes.Template)
        return tree

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """True if the attribute is on the allowlist."""
        if isinstance(obj, Namespace):
            return not attr.startswith("_")
        return any(isinstance(obj, kind) and attr in names for kind, names in _METHODS)

    def is_safe_callable(self, obj: Any) -> bool:
        """True for macros, our own functions, and methods on the allowlist."""
        if (
            isinstance(obj, Macro | LoopContext | Undefined)
            or any(obj is known for known in self.globals.values())
            or getattr(obj, "known", False)
        ):
            return True
        owner = getattr(obj, "__self__", None)
        return owner is not None and self.is_safe_attribute(owner, getattr(obj, "__name__", "_"), obj)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs a call and charges it; string methods that could produce long strings are charged before they run."""
        _budget.get().step()
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(owner, str) and name == "join" and len(args) == 1:
            return _join(args[0], owner)
        if isinstance(owner, str) and name == "replace":
            return _replace(owner, *args)
        return weigh(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Evaluates an operator; charges the size of the result before it is computed."""
        _budget.get().step(_size_of_result(operator, left, right))
        return weigh(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Wraps `"…".format(…)`: raises Exceeded for large widths, which would turn a short text into a long one.

        None if `value` is no such method.
        """
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        _check_format(value.__self__)

        def format(*args: Any, **kwargs: Any) -> str:
            for item in (*args, *kwargs.values()):
                text_of(item)
            return wrapped(*args, **kwargs)

        format.known = True  # type: ignore[attr-defined]
        return format


@cache
def environment() -> Environment:
    """Returns the Jinja environment that all templates share."""
    return Environment()


def _size_of_result(operator: str, left: Any, right: Any) -> int:
    """Returns an upper bound of the size of an operator's result; 0 for numbers. Raises Exceeded for a power with too many bits."""
    if operator == "%" and isinstance(left, str):
        _check_format(left)
        return len(left) + len(
            text_of(right if isinstance(right, str | int | float) else [right] if not isinstance(right, tuple) else right)
        )
    if operator == "*":
        many = [(a, b) for a, b in ((left, right), (right, left)) if isinstance(a, str | list | tuple) and isinstance(b, int)]
        return max((max(1, len(a)) * max(0, b) for a, b in many), default=0)
    if operator == "+" and isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
        return len(left) + len(right)
    if operator == "**" and isinstance(left, int) and isinstance(right, int) and left.bit_length() * max(0, right) > MAX_INTEGER_BITS:
        raise Exceeded("it makes too large a number")
    return 0


def _check_format(text: str) -> None:
    if re.search(r"\d{4}|\*|\{[^{}]*\{", text):
        raise Exceeded("a width in a format is too large")


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a filter: charges the call and its result; turns a generator into a list."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        _budget.get().step()
        result = function(*args, **kwargs)
        if isinstance(result, str | int | float | list | tuple | dict | Undefined) or not isinstance(result, Iterator):
            return weigh(result)
        pieces = []
        for piece in result:
            _budget.get().step()
            pieces.append(piece)
        return weigh(pieces)

    return run


@pass_context
def _finalize(context: Context, value: Any) -> str:
    text = text_of(value)
    _budget.get().step(len(text))
    return text


@pass_context
def _step(context: Context, value: Any) -> None:
    _budget.get().step()


@pass_context
def _concatenated(context: Context, values: list[Any]) -> str:
    return _join(values)


@pass_context
def _weighed(context: Context, value: Any) -> Any:
    return weigh(value)


def _join(value: Any, d: str = "", attribute: str | int | None = None) -> str:
    items = value if attribute is None else [environment().getitem(item, attribute) for item in value]
    texts = [text_of(item) for item in items]
    _budget.get().step(sum(map(len, texts)) + len(texts) * len(text_of(d)))
    return text_of(d).join(texts)


def _replace(value: Any, old: str, new: str, count: int | None = None) -> str:
    text, old, new = text_of(value), text_of(old), text_of(new)
    _budget.get().step(len(text) + (text.count(old) if count is None or count < 0 else min(count, text.count(old))) * len(new))
    return text.replace(old, new, -1 if count is None else count)


def _indent(value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    text = text_of(value)
    size = width if isinstance(width, int) else len(width)
    _budget.get().step(len(text) + (len(text.splitlines()) + 1) * max(0, size))
    indented: str = FILTERS["indent"](text, width, first, blank)
    return indented


def _sum(value: Any, attribute: str | int | None = None, start: float = 0) -> Any:
    items = value if attribute is None else [environment().getitem(item, attribute) for item in value]
    total = start
    for item in items:
        if not isinstance(item, int | float) or not isinstance(total, int | float):
            raise TypeError("only numbers have a sum")
        total = weigh(total + item)
    return total


def _round(value: float, precision: int = 0, method: str = "common") -> Any:
    if not isinstance(precision, int) or abs(precision) > 20:
        raise Exceeded("it rounds to too many digits")
    return FILTERS["round"](value, precision, method)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: tuple[str, str] | None = None, sort_keys: bool = False
) -> str:
    if indent is not None and not (isinstance(indent, int) and 0 <= indent <= 16):
        raise Exceeded("it indents by too much")
    _budget.get().step(2 * _weight(value, _budget.get().at_once, plain=True) * (1 + (indent or 0)))
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str = "") -> None:
    raise Refused(text_of(message)[:1000])
