"""What an ONNX file holds, for `pliant inspect`: inputs, outputs, operators, weights, and all that is not supported."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from ...support.errors import Error
from .dtypes import type_name
from .importer import Importer
from .reader import domain_of, read_model, walk


def onnx_facts(path: str) -> dict[str, Any]:
    """The facts, ready for JSON; `problem` has the error where the model cannot be imported."""
    model = read_model(path)
    operators = Counter(f"{d}.{n.op_type}" if (d := domain_of(n.domain)) else n.op_type for _, n in walk(model.proto))
    found: dict[str, Any] = {
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
        found["problem"] = str(error)
        return found
    found["inputs"] = [repr(p) for p in function.params]
    found["outputs"] = [f"{name}: {r.annotation}" for name, r in zip(function.attrs["outputs"], function.results, strict=True)]
    return found


def onnx_text(facts: dict[str, Any]) -> str:
    """The facts as text."""
    opsets = ", ".join(f"{d} {v}" for d, v in facts["opsets"].items())
    lines = [f"{facts['file']}: {facts['bytes']} bytes, opset {opsets}" + (f", made by {facts['made_by']}" if facts["made_by"] else "")]
    lines += [f"  {text}" for text in facts["inputs"]] + [f"  -> {text}" for text in facts["outputs"]]
    total = sum(facts["operators"].values())
    lines.append(f"{total} nodes: " + ", ".join(f"{n} {name}" for name, n in facts["operators"].items()))
    lines.append(f"{len(facts['tensors'])} initialisers")
    return "\n".join([*lines, *([facts["problem"]] if facts["problem"] else [])])
