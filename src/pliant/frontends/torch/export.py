"""Exports a module to core ATen with composites kept, and names its dynamic dims in the user's words.

Sizes of 1 are no special case: with `backed_size_oblivious` torch records a branch on a size of 1 as a guard, instead of assuming that no
dynamic size is 1. Named dims are tried first; if torch refuses them, each dim gets a symbol of its own, and the names are kept by us.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ...support.errors import UnsupportedError
from .table import decompositions

Names = dict[tuple[int, int], str]  # (number of the input's leaf, dim) -> the user's name


def exported(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any) -> tuple[Any, Names, list[str]]:
    """Returns the decomposed ExportedProgram, the user's names of dims, and the text of each input's leaf in torch's guards.

    An ExportedProgram is only decomposed, and has no names. Raises UnsupportedError for anything but that and a module, and for a module
    that torch cannot export.
    """
    import torch
    from torch.export import ExportedProgram

    if isinstance(model, ExportedProgram):
        given_args, given_kwargs = model.example_inputs or ((), {})
        return decomposed(model), {}, guard_texts(None, given_args, given_kwargs)
    if not isinstance(model, torch.nn.Module):
        raise UnsupportedError(f"torch: a module or an ExportedProgram is expected, not an object of type `{type(model).__name__}`")
    names = names_of(model, args, kwargs, dynamic_shapes)
    texts = guard_texts(model, args, kwargs)
    problem: Exception | None = None
    for shapes in _attempts(dynamic_shapes):
        try:
            with _any_size():
                return torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=False).run_decompositions(
                    decompositions()
                ), names, texts  # fmt: skip
        except Exception as error:
            problem = problem or error
    help_ = "torch.export says this: see torch's messages, or pass an ExportedProgram"
    what = f"torch: the module cannot be exported: {type(problem).__name__}: {str(problem).strip()[:2000]}"
    raise UnsupportedError(what, help=help_) from problem


def decomposed(program: Any) -> Any:
    """Returns an ExportedProgram over core ATen with composites kept."""
    with _any_size():
        return program.run_decompositions(decompositions())


def _any_size() -> Any:
    """Returns a context in which torch assumes nothing about sizes of 0 and 1 that it does not record."""
    from torch.fx.experimental import _config

    return _config.patch(backed_size_oblivious=True)


def _attempts(dynamic_shapes: Any) -> list[Any]:
    """Returns the forms of dynamic shapes to try: as named dims, then as a symbol for each dim, then as dims that may be constant.

    For None the only form is None.
    """
    import torch

    if dynamic_shapes is None:
        return [None]
    dims: dict[str, Any] = {}
    dim = torch.export.Dim

    def named(spec: Any) -> Any:
        return dims.setdefault(spec, dim(spec)) if isinstance(spec, str) else spec

    def instead(hint: Any) -> Any:
        return lambda spec: hint if isinstance(spec, str) or hasattr(spec, "__name__") else spec

    kinds = [named, instead(dim.DYNAMIC), instead(dim.AUTO)]
    return [mapped(dynamic_shapes, f) for f in kinds]


def mapped(spec: Any, of: Any) -> Any:
    """Returns a copy of a tree of dicts, lists and tuples in which each leaf is replaced by `of(leaf)`."""
    if isinstance(spec, Mapping):
        return {k: mapped(v, of) for k, v in spec.items()}
    if isinstance(spec, list | tuple):
        return type(spec)([mapped(v, of) for v in spec])
    return of(spec)


def _paths(args: tuple[Any, ...], kwargs: Mapping[str, Any], parameters: list[str]) -> list[tuple[Any, ...]]:
    """Returns the path of each leaf of the inputs: the name of the parameter, then keys and indices."""
    from torch.utils import _pytree as pytree

    leaves, _ = pytree.tree_flatten_with_path((args, dict(kwargs)))
    found = []
    for path, _leaf in leaves:
        first, second, *rest = _keys(path)
        head: tuple[Any, ...]
        if first == 0:
            fixed = len(parameters) - 1 if parameters and parameters[-1].startswith("*") else len(parameters)
            head = (parameters[second],) if second < fixed else (parameters[-1].lstrip("*"), second - fixed)
        else:
            head = (second,)
        found.append((*head, *rest))
    return found


def _keys(path: Any) -> list[Any]:
    """Returns the keys and indices of a path in a tree."""
    return [getattr(k, "idx", getattr(k, "key", getattr(k, "name", None))) for k in path]


def _parameters(model: Any, args: tuple[Any, ...]) -> list[str]:
    """Returns the names of the positional parameters of `forward`; that of `*args` begins with a star.

    Without a module (None) they are `arg_0`, `arg_1`, and so on, one for each argument.
    """
    if model is None:
        return [f"arg_{k}" for k in range(len(args))]
    found: list[str] = []
    for p in inspect.signature(model.forward).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            return [*found, f"*{p.name}"]
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            found.append(p.name)
    return found


def guard_texts(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
    """Returns how torch's guards write each leaf of the inputs: `L['x']`, `L['cache'][0]`."""
    paths = _paths(args, kwargs, _parameters(model, args))
    return ["L" + "".join(f"[{key!r}]" for key in path) for path in paths]


def names_of(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic_shapes: Any) -> Names:
    """Returns the names that the user gave to dims, by (number of the input's leaf, axis); empty for None."""
    if dynamic_shapes is None:
        return {}
    names: Names = {}
    parameters = _parameters(model, args)
    order = [p.lstrip("*") for p in parameters[: len(args)]] + list(kwargs)
    for leaf, path in enumerate(_paths(args, kwargs, parameters)):
        spec = dynamic_shapes
        if isinstance(spec, list | tuple):
            spec = spec[order.index(path[0])] if path[0] in order and order.index(path[0]) < len(spec) else None
            path = path[1:]
        for key in path:
            spec = _inside(spec, key)
        pairs = spec.items() if isinstance(spec, Mapping) else enumerate(spec) if isinstance(spec, list | tuple) else ()
        for axis, dim in pairs:
            name = dim if isinstance(dim, str) else getattr(dim, "__name__", None)
            if isinstance(axis, int) and name and str(name).isidentifier():
                names[leaf, axis] = str(name)
    return names


def _inside(spec: Any, key: Any) -> Any:
    """Returns the part of a tree of dynamic shapes under a key; None if there is none."""
    if isinstance(spec, Mapping):
        return spec.get(key)
    if isinstance(spec, list | tuple) and isinstance(key, int) and key < len(spec):
        return spec[key]
    return None
