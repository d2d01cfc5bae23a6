"""The layers of an ONNX model as a table by module, from the names that exporters give nodes: `/model.2/cv1/conv/Conv`.

Modules are shown as deep as the table stays readable. Nodes of exporters that give no paths are grouped by their names without numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...graph.node import Const, Function, Node, Tensor, walk_nodes
from ...support.units import in_words
from ...sym.exact import exact
from ...sym.expr import free_vars
from ...sym.shorten import shorten
from .summary import node_multiply_adds

MOST_ROWS = 40


def module_rows(function: Function, dims: Mapping[str, int]) -> list[dict[str, Any]]:
    """Returns a row for each module: its operators, elements of weights, multiply-adds at `dims`, and the shape of its last result.

    A row is a dict. Modules are names cut at the deepest level with at most 40 rows. A weight that several nodes share counts once. Nodes
    whose multiply-adds depend on a dim that `dims` lacks count 0.
    """
    nodes = list(walk_nodes(function.nodes))
    paths = {id(n): _path(n) for n in nodes}
    deepest = max((len(p) for p in paths.values()), default=1)
    depth = next((d for d in range(deepest, 1, -1) if len({p[:d] for p in paths.values()}) <= MOST_ROWS), 1)
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    seen: set[int] = set()
    for n in nodes:
        empty = {"module": "/".join(paths[id(n)][:depth]), "operators": 0, "weights": 0, "multiply_adds": 0, "output": ""}
        row = rows.setdefault(paths[id(n)][:depth], empty)
        if isinstance(n, Const):
            row["weights"] += 0 if id(n.array) in seen else n.array.size
            seen.add(id(n.array))
            continue
        row["operators"] += 1
        row["multiply_adds"] += _products(n, dims)
        annotation = n.outs[0].annotation if n.outs else None
        if isinstance(annotation, Tensor):
            row["output"] = "[" + ", ".join(str(shorten(d)) for d in annotation.shape) + "]"
    return list(rows.values())


def _path(node: Node) -> tuple[str, ...]:
    """Returns the module of a node: the parts of its name between slashes, but the last one.

    A name with one part stands for itself, without the number at its end; a node without a name has the module "(no name)".
    """
    name = node.origin[0] if node.origin else ""
    parts = tuple(part for part in name.split("/") if part)
    if len(parts) > 1:
        return parts[:-1]
    return (re.sub(r"[._]?\d+$", "", parts[0]) if parts else "(no name)",)


def _products(node: Node, dims: Mapping[str, int]) -> int:
    """Returns the multiply-adds of a node at `dims`; 0 if it has none, or if they depend on a dim that is not given."""
    formula = node_multiply_adds(node)
    if formula is None or any(v.name not in dims for v in free_vars(formula)):
        return 0
    return exact(formula, {v: dims[v.name] for v in free_vars(formula)})


def module_text(rows: list[dict[str, Any]], dims: Mapping[str, int]) -> str:
    """Returns the rows of `module_rows` as a table of text with aligned columns, a row of totals, and a line with `dims` if not empty."""
    at = ", ".join(f"{name} = {n}" for name, n in dims.items())
    cells = [("module", "operators", "weights", "multiply-adds", "output")]
    cells += [
        (r["module"], str(r["operators"]), in_words(r["weights"]), in_words(r["multiply_adds"]), r["output"]) for r in rows
    ]  # fmt: skip
    operators, weights, products = (in_words(sum(r[key] for r in rows)) for key in ("operators", "weights", "multiply_adds"))
    cells.append(("all", operators, weights, products, ""))
    widths = [max(len(row[k]) for row in cells) for k in range(4)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:4], widths[1:], strict=True)), row[4]]).rstrip()
        for row in cells
    ]
    return "\n".join([*lines, *([f"multiply-adds at {at}"] if at else [])])
