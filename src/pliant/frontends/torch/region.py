"""Imports a graph that `torch.compile` hands to a backend, or a part of one: placeholders are tensors, weights and sizes.

function, arguments, outputs = import_region(module, {"arg0_1": weight})
# the function's parameters are the placeholders at `arguments`; output k of the graph is result outputs[k], or None
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...graph.node import Function, Tensor
from ...graph.verify import verify
from ...support.names import identifier
from ...sym.expr import DIM_MAX, Dim, const
from .dtypes import dtype_of
from .importer import Importer
from .symbols import translated, wide


@dataclass(frozen=True)
class Region:
    """An imported graph: its function, the placeholders that are its parameters, and where each output of the graph comes from.

    An output is the number of a result, or None if it is absent, or `-1 - k` if it is argument `k`, a number.
    """

    function: Function
    arguments: tuple[int, ...]
    outputs: tuple[int | None, ...]


def import_region(module: Any, weights: Mapping[str, Any]) -> Region:
    """Returns a graph module as a graph function; `weights` are the tensors of placeholders that become literals, by name.

    Other placeholders that are tensors become parameters, and sizes become dims from 0 on. Raises UnsupportedError for what cannot be
    imported.
    """
    import torch

    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    dims = _dims_of(placeholders)
    importer = Importer("region")
    arguments = []
    with importer.builder:
        for k, node in enumerate(placeholders):
            val = node.meta.get("val")
            if node.name in weights:
                importer.values[node] = importer.literal(weights[node.name], node.name)
            elif isinstance(val, torch.Tensor):
                shape = tuple(const(n) if isinstance(n, int) else wide(translated(n.node.expr, dims)) for n in val.shape)
                importer.values[node] = importer.builder.param(identifier(node.name), Tensor(dtype_of(val.dtype), shape))
                arguments.append(k)
            elif isinstance(val, torch.SymInt):
                importer.values[node] = translated(val.node.expr, dims)
            else:
                importer.values[node] = val
        found = importer.nodes(module)
        flat = found if isinstance(found, list) else [found]
        passed = _passed(module, placeholders)
        kept = [v for k, v in enumerate(flat) if v is not None and k not in passed]
        results = importer.results(kept)
    numbers = iter(range(len(results)))
    outputs = tuple(-1 - passed[k] if k in passed else None if v is None else next(numbers) for k, v in enumerate(flat))
    function = importer.builder.finish(results, {"outputs": tuple(f"y{k}" for k in range(len(results)))})
    verify(function)
    return Region(function, tuple(arguments), outputs)


def _dims_of(placeholders: list[Any]) -> dict[str, Any]:
    """Returns a new dim, from 0 on, for each symbol in the shapes of the placeholders, by the symbol's name."""
    import torch

    dims: dict[str, Any] = {}
    for node in placeholders:
        val = node.meta.get("val")
        for axis, n in enumerate(val.shape if isinstance(val, torch.Tensor) else ()):
            if isinstance(n, torch.SymInt):
                for symbol in sorted(n.node.expr.free_symbols, key=str):
                    dims.setdefault(symbol.name, Dim(f"{identifier(node.name)}_{axis}_{len(dims)}", 0, DIM_MAX))
    return dims


def _outputs(module: Any) -> list[Any]:
    """Returns the values that a graph returns, as a list, also for one alone."""
    value = next(n for n in module.graph.nodes if n.op == "output").args[0]
    return list(value) if isinstance(value, list | tuple) else [value]


def _passed(module: Any, placeholders: list[Any]) -> dict[int, int]:
    """Returns the outputs that are placeholders without a tensor: the number of the output -> that of the placeholder."""
    import torch

    nodes = _outputs(module)
    return {k: placeholders.index(v) for k, v in enumerate(nodes) if v in placeholders and not isinstance(v.meta.get("val"), torch.Tensor)}


def supported_outputs(module: Any) -> bool:
    """True if all results of a graph are tensors, absent, or arguments that are no tensors."""
    import torch

    passed = _passed(module, [n for n in module.graph.nodes if n.op == "placeholder"])
    nodes = _outputs(module)
    return all(v is None or k in passed or isinstance(getattr(v, "meta", {}).get("val"), torch.Tensor) for k, v in enumerate(nodes))
