"""Describes how a program made from a module is called: the pytrees of its arguments and its result, as data for `runtime/pytree.py`."""

from __future__ import annotations

from typing import Any


def calling(signature: Any) -> dict[str, Any]:
    """Returns, as data for a file, the trees of the arguments and of the result of an exported program.

    With them it returns which leaves are tensors, the values that other leaves had, and the outputs that are constants.
    """
    import torch

    spec = signature.program.call_spec
    kinds = [isinstance(node.meta.get("val"), torch.Tensor) for node, _ in signature.inputs]
    fixed = [[] if tensor else _known(s.arg) for tensor, (_, s) in zip(kinds, signature.inputs, strict=True)]
    outputs = [getattr(s.arg, "value", None) if hasattr(s.arg, "value") else "*" for s in signature.program.graph_signature.output_specs]
    return {
        "arguments": described(spec.in_spec),
        "tensors": kinds,
        "fixed": fixed,
        "result": described(spec.out_spec),
        "outputs": [v if isinstance(v, bool | int | float | str) else None for v in outputs],
    }


def _known(arg: Any) -> list[Any]:
    """Returns the value that a leaf without a tensor had at the export, alone in a list; an empty list if a file cannot hold it."""
    value = getattr(arg, "value", arg)
    return [value] if value is None or isinstance(value, bool | int | float | str) else []


def described(spec: Any) -> Any:
    """Returns a TreeSpec as JSON data: `"*"` for a leaf, else its kind, its keys and its children.

    The kind is "tuple", "list", "dict", or `module:class`, whose keys are None if they are no names.
    """
    if spec.is_leaf():
        return "*"
    children = [described(c) for c in spec.children()]
    kind = spec.type
    if kind in (tuple, list):
        return {"kind": kind.__name__, "children": children}
    if kind is dict or kind.__name__ == "OrderedDict":
        return {"kind": "dict", "keys": list(spec.context), "children": children}
    keys = spec.context if isinstance(spec.context, list | tuple) and all(isinstance(k, str) for k in spec.context) else None
    return {"kind": f"{kind.__module__}:{kind.__qualname__}", "keys": None if keys is None else list(keys), "children": children}
