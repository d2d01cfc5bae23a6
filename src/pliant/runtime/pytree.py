"""Calls of programs that were made from PyTorch modules: arguments and results are trees of tensors, as the module's were.

A tree is described by data that a file can hold: `"*"` is a leaf, else a dict with the kind, the keys and the children. A node of a class
(a model's output, a cache) is made again if its module is imported, else it becomes a dict: files never import anything.

    call = tree_call(f.__call__, description)
    call(x, mask=m)["last_hidden_state"]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..support.errors import CallError, ShapeError
from ..support.source import caller_span

Tree = Any  # "*", or {"kind": …, "keys": …, "children": […]}


MOST_NODES = 10_000  # of a description from a file


def checked_description(data: Any) -> Any:
    """Returns a description that was read from a file, unchanged; raises a ValueError unless its parts are trees and lists that fit."""
    if not isinstance(data, dict) or set(data) != {"arguments", "tensors", "fixed", "result", "outputs"}:
        raise ValueError("no description of calls")
    inputs, results = _count(data["arguments"]), _count(data["result"])
    top = data["arguments"]
    both = isinstance(top, dict) and [isinstance(c, dict) and c["kind"] for c in top["children"]] == ["tuple", "dict"]
    flags, outputs = data["tensors"], data["outputs"]
    fits = isinstance(flags, list) and len(flags) == inputs and isinstance(outputs, list) and len(outputs) == results
    fixed = data["fixed"]
    fits = fits and isinstance(fixed, list) and len(fixed) == inputs and all(isinstance(v, list) and len(v) <= 1 for v in fixed)
    if not both or not fits or not all(isinstance(f, bool) for f in flags):
        raise ValueError("the parts of the description do not fit")
    return data


def _count(tree: Any, depth: int = 0) -> int:
    """Returns the number of leaves of a tree; raises a ValueError for what is no tree, or a very large one."""
    if tree == "*":
        return 1
    if not isinstance(tree, dict) or not isinstance(tree.get("kind"), str) or not isinstance(tree.get("children"), list) or depth > 100:
        raise ValueError("no tree")
    keys, children = tree.get("keys"), tree["children"]
    if keys is not None and not (isinstance(keys, list) and len(keys) == len(children) and all(isinstance(k, str | int) for k in keys)):
        raise ValueError("the keys of a tree do not fit")
    if keys is None and tree["kind"] == "dict":
        raise ValueError("a dict without keys")
    total = sum(_count(c, depth + 1) for c in children)
    if total > MOST_NODES:
        raise ValueError("a tree is too large")
    return total


def is_plain(description: Mapping[str, Any]) -> bool:
    """True if calls need no translation: positional tensors in, one tensor or a tuple of two or more tensors out."""
    arguments, result = description["arguments"], description["result"]
    positional, named = arguments["children"]
    flat = all(c == "*" for c in positional["children"]) and not named["children"] and all(description["tensors"])
    several = result != "*" and result["kind"] == "tuple" and len(result["children"]) > 1 and all(c == "*" for c in result["children"])
    return flat and (result == "*" or several) and all(v == "*" for v in description["outputs"])


def tree_call(call: Callable[..., Any], description: Mapping[str, Any], names: list[str]) -> Callable[..., Any]:
    """Returns the function that users call: it takes and returns trees; `call` takes the tensors, whose names are `names`.

    The tensors may also be given by these names, all of them and nothing else. The function raises a ShapeError if the arguments have
    another structure than those of the export.
    """
    arguments, tensors, outputs = description["arguments"], description["tensors"], description["outputs"]
    positional, named = arguments["children"]
    fixed = description["fixed"]
    count = sum(v == "*" for v in outputs)

    def run(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if set(kwargs) == set(names) and not args:
            flat = [kwargs[n] for n in names]
        else:
            given = [*_leaves(_fitting(args, kwargs, positional, named), positional, "the arguments")]
            given += _leaves({k: v for k, v in kwargs.items() if k in (named["keys"] or ())}, named, "the arguments")
            for value, tensor, was in zip(given, tensors, fixed, strict=True):
                _check_leaf(value, tensor, was)
            flat = [g for g, tensor in zip(given, tensors, strict=True) if tensor]
        results = call(*map(_contiguous, flat), out=out)
        found = iter((results,) if count == 1 else results)
        return _made(description["result"], iter([next(found) if v == "*" else v for v in outputs]))

    return run


def _check_leaf(value: Any, tensor: bool, was: list[Any]) -> None:
    """Raises a ShapeError for a leaf that is None where a tensor was, or for another value than that of the export.

    `was` is that value in a list, because it is part of the program; an empty list allows any value.
    """
    if tensor and value is None:
        raise ShapeError("an argument is None where the module was exported with a tensor", where=caller_span())
    if not tensor and was and not (value is was[0] or (type(value) is type(was[0]) and value == was[0])):
        raise ShapeError(
            f"the module was exported with {was[0]!r}, and {value!r} is given",
            where=caller_span(),
            help="export it again with the value that you want: it decides what is computed",
        )


def _contiguous(x: Any) -> Any:
    """Returns a torch tensor as it can be passed: detached, and copied if it is strided; other values unchanged."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor):
        return x
    return x.detach().contiguous()


def _fitting(args: tuple[Any, ...], kwargs: Mapping[str, Any], positional: Tree, named: Tree) -> tuple[Any, ...]:
    """Returns the positional arguments.

    Raises a CallError unless there are as many as at the export, and the arguments by name have the same names.
    """
    keys = named["keys"] or []
    if len(args) != len(positional["children"]) or set(kwargs) != set(keys):
        wanted = [f"{len(positional['children'])} positional", *(f"`{k}`" for k in keys)]
        raise CallError(
            f"the arguments are {', '.join(wanted)}, and {len(args)} positional and {', '.join(kwargs) or 'none by name'} are given",
            where=caller_span(),
            help="call the program as the module was called when it was exported",
        )
    return args


def _leaves(value: Any, tree: Tree, what: str) -> Iterator[Any]:
    """Yields the leaves of a value in the order of the tree; raises a ShapeError if its structure is another."""
    if tree == "*":
        yield value
        return
    kind, children = tree["kind"], tree["children"]
    if kind in ("tuple", "list"):
        parts = list(value) if isinstance(value, list | tuple) else None
    elif kind == "dict":
        fits = isinstance(value, Mapping) and set(tree["keys"]) == set(value)
        parts = [value[k] for k in tree["keys"]] if fits else None
    else:
        parts = _parts(value)
    if parts is None or len(parts) != len(children):
        raise ShapeError(f"{what} have another structure than the example of the export: {kind} is expected", where=caller_span())
    for part, child in zip(parts, children, strict=True):
        yield from _leaves(part, child, what)


def _parts(value: Any) -> list[Any] | None:
    """Returns the parts of an object that torch knows as a tree; None for others."""
    torch = sys.modules.get("torch")
    known = None if torch is None else torch.utils._pytree.SUPPORTED_NODES.get(type(value))
    return None if known is None else list(known.flatten_fn(value)[0])


def _made(tree: Tree, leaves: Iterator[Any]) -> Any:
    """Returns the value of a tree from its leaves, which it takes in order.

    A node of a class that is not known here becomes a dict if it has keys, else a tuple.
    """
    if tree == "*":
        return next(leaves)
    parts = [_made(child, leaves) for child in tree["children"]]
    kind, keys = tree["kind"], tree.get("keys")
    if kind == "tuple":
        return tuple(parts)
    if kind == "list":
        return parts
    named = dict(zip(keys, parts, strict=True)) if keys is not None else None
    if kind == "dict":
        return named
    cls = _class(kind)
    return cls(**named) if cls is not None and named is not None else named if named is not None else tuple(parts)


def _class(kind: str) -> Any:
    """Returns the class `module:name` of a node if it is a Mapping, its module is imported, and torch knows it as a tree; else None."""
    module, _, name = kind.partition(":")
    torch, found = sys.modules.get("torch"), sys.modules.get(module)
    cls = getattr(found, name, None) if found is not None else None
    if torch is None or not isinstance(cls, type) or cls not in torch.utils._pytree.SUPPORTED_NODES:
        return None
    return cls if issubclass(cls, Mapping) else None
