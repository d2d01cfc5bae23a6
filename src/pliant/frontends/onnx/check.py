"""Validates a node against the schema of its operator: numbers of inputs and outputs, attributes, data types.

onnx: node "conv1" (Conv, opset 11): attribute "pads" is a string, integers are expected
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from .dtypes import schema_name
from .items import Maybe, Sequence
from .reader import load_onnx

if TYPE_CHECKING:
    from .node_context import NodeContext

OUTSIDE = ("SimplifiedLayerNormalization",)  # onnxruntime's exporter puts it into the default domain, though it is not standard
_WORDS = {
    1: "a float", 2: "an integer", 3: "a string", 4: "a tensor", 5: "a graph", 6: "floats", 7: "integers", 8: "strings",
    9: "tensors", 10: "graphs", 11: "a sparse tensor", 12: "sparse tensors", 13: "a type", 14: "types",
}  # fmt: skip


@lru_cache(maxsize=1024)
def schema_of(op: str, version: int, domain: str) -> Any:
    """Returns the ONNX schema of an operator at an opset version of its domain, or None."""
    defs = load_onnx().defs
    try:
        return defs.get_schema(op, version, domain)
    except defs.SchemaError:
        return None


class Checked(Protocol):
    """The interface of an ONNX node to be validated: an imported one, or one that runs on the host."""

    op: str
    domain: str
    version: int
    node: Any
    items: list[Any]
    attributes: dict[str, Any]

    def wrong(self, what: str, **more: Any) -> Exception:
        """Returns an error that names the node."""


def check_node(site: NodeContext) -> None:
    """Raises an error that names the node if it violates the schema of its operator."""
    check_form(site)
    schema = schema_of(site.op, site.version, site.domain)
    if schema is not None:
        _check_types(site, schema)


def check_form(site: Checked) -> None:
    """Raises if a node has a wrong number of inputs or outputs, or wrong attributes; data types are not checked.

    Also raises if the opset of the model does not have the operator, or no longer. Operators of other domains without a schema are not
    checked.
    """
    schema = schema_of(site.op, site.version, site.domain)
    if schema is None:
        if not site.domain and site.op not in OUTSIDE:
            raise site.wrong(f"opset {site.version} has no operator {site.op}")
        return
    if schema.deprecated:
        raise site.wrong(f"the operator is not part of opset {site.version} any more")
    inputs, outputs = len(site.items), len(site.node.output)
    if not schema.min_input <= inputs <= schema.max_input:
        raise site.wrong(f"it has {inputs} inputs, {_range(schema.min_input, schema.max_input)} expected")
    if outputs > schema.max_output:
        raise site.wrong(f"it has {outputs} results, {_range(schema.min_output, schema.max_output)} expected")
    _check_attributes(site, schema)


def _range(least: int, most: int) -> str:
    """Returns the expected number of inputs or outputs as text for messages."""
    return (
        f"{least} {'is' if least == 1 else 'are'}"
        if least == most
        else f"{least} to {most} are"
        if most < 1 << 20
        else f"at least {least} are"
    )


def _check_attributes(site: Checked, schema: Any) -> None:
    """Raises if an attribute is unknown, missing or of another type."""
    for name, attribute in site.attributes.items():
        expected = schema.attributes.get(name)
        if expected is None:
            raise site.wrong(
                f'there is no attribute "{name[:80]}"', facts=[f"its attributes are {', '.join(sorted(schema.attributes)) or 'none'}"]
            )
        if attribute.type != int(expected.type.value):
            words = _WORDS.get(attribute.type, "of no type"), _WORDS[int(expected.type.value)]
            raise site.wrong(f'attribute "{name}" is {words[0]}, {words[1]} {"is" if words[1].startswith("a") else "are"} expected')
    for name, expected in schema.attributes.items():
        if expected.required and name not in site.attributes:
            raise site.wrong(f'attribute "{name}" is missing')


def _check_types(site: NodeContext, schema: Any) -> None:
    """Raises if the operator does not accept an input's data type, or inputs of one type variable differ."""
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    bound: dict[str, tuple[str, int]] = {}  # type variable -> the type of its first input, and that input
    formal = schema.inputs
    for k, item in enumerate(site.items):
        if item is None or isinstance(item, Maybe | Sequence):
            continue
        parameter = formal[min(k, len(formal) - 1)]
        name, kind = schema_name(site.dtype(k)), parameter.type_str
        types = allowed.get(kind, {kind})
        if not any("seq(" in t or "optional(" in t for t in types) and name not in types:
            raise site.wrong(f"input {k} ({parameter.name}) is {name}, which it does not take")
        if kind in allowed and parameter.is_homogeneous and bound.setdefault(kind, (name, k))[0] != name:
            other, first = bound[kind]
            raise site.wrong(f"input {k} ({parameter.name}) is {name}, and input {first} is {other}: they must be the same")
