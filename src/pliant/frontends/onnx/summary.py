"""Summarizes an ONNX file for `pliant inspect`: inputs, outputs, operators, weights, cost, and unsupported operators."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from ...graph.node import Const, Function, Node, Op, Tensor, walk_nodes
from ...support.errors import Error
from ...support.units import in_bytes, in_words
from ...sym.exact import exact
from ...sym.expr import Expr, const, free_vars, product
from ...sym.shorten import shorten
from ...sym.simplify import simplify
from .dtypes import type_name
from .importer import Importer
from .memory import Peak
from .reader import domain_of, read_model, walk


def onnx_facts(path: str) -> dict[str, Any]:
    """Returns a summary of an ONNX file as data for JSON; `problem` is the error if the model cannot be imported, else empty."""
    model = read_model(path)
    operators = Counter(f"{d}.{n.op_type}" if (d := domain_of(n.domain)) else n.op_type for _, n in walk(model.proto))
    facts: dict[str, Any] = {
        "file": path,
        "bytes": Path(path).stat().st_size,
        "made_by": f"{model.proto.producer_name} {model.proto.producer_version}".strip(),
        "opsets": {d or "ai.onnx": v for d, v in model.opsets.items()},
        "operators": dict(operators.most_common()),
        "tensors": [{"name": t.name, "dtype": type_name(t.data_type), "shape": list(t.dims)} for t in model.proto.graph.initializer],
        "inputs": [],
        "outputs": [],
        "problem": "",
    }
    try:
        function = Importer(model).run()
    except Error as error:
        facts["problem"] = str(error)
        return facts
    facts["inputs"] = [repr(p) for p in function.params]
    facts["outputs"] = [f"{name}: {_shortened(r.annotation)}" for name, r in zip(function.attrs["outputs"], function.results, strict=True)]
    literals = {id(n.array): n.array for n in walk_nodes(function.nodes) if isinstance(n, Const)}.values()  # branches may share one
    facts["weights"] = {"tensors": len(literals), "bytes": sum(a.nbytes for a in literals)}
    total = multiply_adds(function)
    facts["multiply_adds"] = str(total)
    peak, sizes = Peak(function), samples(function)
    formula = peak.formula(sizes[-1])
    facts["memory"] = "" if formula is None else str(formula)
    facts["sizes"] = [{"dims": dims, "multiply_adds": _at(total, dims), "memory": peak.at(dims)} for dims in sizes]
    return facts


def multiply_adds(function: Function) -> Expr:
    """Returns the number of multiply-adds of convolutions and matmuls, as a formula of the dims; loop bodies count once."""
    terms = [products for n in walk_nodes(function.nodes) if (products := node_multiply_adds(n)) is not None]
    return simplify(sum(terms, const(0)))


def node_multiply_adds(n: Node) -> Expr | None:
    """Returns the number of multiply-adds of one node; None if it is no convolution or matmul."""
    if not isinstance(n, Op) or n.op not in ("conv", "conv_transpose", "matmul", "matmul_integer"):
        return None
    x, w = (a.tensor.shape for a in n.args[:2])
    if n.op == "conv":
        return product((*n.outs[0].tensor.shape, *w[1:]))
    if n.op == "conv_transpose":
        return product((*x, *w[1:]))
    turned = n.attrs is not None and getattr(n.attrs, "transpose_a", False)
    return product((*n.outs[0].tensor.shape, x[-2 if turned else -1]))


def samples(function: Function) -> list[dict[str, int]]:
    """Returns example dims to evaluate formulas at: batch 1, and 256 or 512 for all other dims."""
    first = {str(p.annotation.shape[0]) for p in function.params if isinstance(p.annotation, Tensor) and p.annotation.shape}
    names = dict.fromkeys(str(d) for p in function.params if isinstance(p.annotation, Tensor) for d in p.annotation.shape if free_vars(d))
    return [{name: 1 if name in first else size for name in names} for size in ((256, 512) if set(names) - first else (256,))]


def _shortened(annotation: Any) -> Any:
    """Returns the annotation of a result with dims that are shorter to read."""
    return Tensor(annotation.dtype, tuple(map(shorten, annotation.shape))) if isinstance(annotation, Tensor) else annotation


def _at(total: Expr, dims: dict[str, int]) -> int | None:
    """Returns the value of a formula for these dims; None if it has data-dependent variables."""
    values = {v: dims[v.name] for v in free_vars(total) if v.name in dims}
    return exact(total, values) if len(values) == len(free_vars(total)) else None


def _short(text: str) -> str:
    """Truncates a long type for the terminal; --json shows it whole."""
    return text if len(text) <= 240 else text[:237] + "…"


def onnx_text(facts: dict[str, Any]) -> str:
    """Formats the summary for the terminal."""
    opsets = ", ".join(f"{d} {v}" for d, v in facts["opsets"].items())
    lines = [f"{facts['file']}: {in_bytes(facts['bytes'])}, opset {opsets}" + (f", made by {facts['made_by']}" if facts["made_by"] else "")]
    lines += [f"  {_short(text)}" for text in facts["inputs"]] + [f"  -> {_short(text)}" for text in facts["outputs"]]
    total = sum(facts["operators"].values())
    lines.append(f"{total} nodes: " + ", ".join(f"{n} {name}" for name, n in facts["operators"].items()))
    if not facts["problem"]:
        lines.append(f"weights: {in_bytes(facts['weights']['bytes'])} in {facts['weights']['tensors']} tensors")
        if len(facts["multiply_adds"]) <= 80:
            lines.append(f"multiply-adds: {facts['multiply_adds']}")
        if len(facts["memory"]) <= 80:
            lines.append(f"bytes beside the weights, before anything is fused: {facts['memory'] or 'known only when it runs'}")
        for size in facts["sizes"]:
            if size["multiply_adds"] is not None and size["dims"]:
                where = ", ".join(f"{name} = {n}" for name, n in size["dims"].items())
                memory = "" if size["memory"] is None else f", {in_bytes(size['memory'])} beside the weights"
                lines.append(f"at {where}: {in_words(size['multiply_adds'])} multiply-adds{memory}")
    return "\n".join([*lines, *([facts["problem"]] if facts["problem"] else [])])
