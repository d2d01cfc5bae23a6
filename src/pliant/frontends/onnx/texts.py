"""Models with tensors of texts: cut into stages, those on the host and those that are programs, one after the other.

    stages = text_stages(model)             # None where there are no texts
    run = Staged(model, stages, session)    # `session` makes a session of a model of one stage

A node is on the host where an operand or a result of it is of texts (`text_operators.py`). What lies between is a model of its own: the
types of what it takes from before are those of the arrays that come, so that it is made when they come for the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...dtype import dtype
from ...support.errors import ModelFileError, ShapeError, UnsupportedError
from ...support.record import dataclass
from .check import check_form
from .dtypes import number_of
from .importer import list_missing
from .reader import Model, domain_of, load_onnx
from .tensors import read_tensor
from .text_operators import HOST, STRING, Call, as_texts, read_texts, run_on_host, text_results


@dataclass(frozen=True, slots=True)
class Stage:
    """Nodes that run together, what they take from before, and what others take from them."""

    host: bool
    nodes: list[Any]
    inputs: list[str]
    outputs: list[str]


def text_stages(model: Model) -> list[Stage] | None:
    """The stages of a model, None where it has no texts."""
    graph = model.proto.graph
    texts = {i.name for i in graph.input if i.type.tensor_type.elem_type == STRING}
    texts |= {t.name for t in graph.initializer if t.data_type == STRING}
    hosts = [_is_host(node, texts) for node in graph.node]
    if not texts and not any(hosts):
        return None
    missing = {n.op_type for n, host in zip(graph.node, hosts, strict=True) if host and (domain_of(n.domain), n.op_type) not in HOST}
    if missing:
        help_ = f"there are {', '.join(sorted(op for _, op in HOST))}"
        raise UnsupportedError("onnx: operators on texts are not supported", facts=[", ".join(sorted(missing))], help=help_)
    for node, host in zip(graph.node, hosts, strict=True):
        if host:
            domain = domain_of(node.domain)
            check_form(Call(node, domain, model.opsets.get(domain, 1), list(node.input)))
    return _grouped(graph, hosts)


def _is_host(node: Any, texts: set[str]) -> bool:
    """Whether a node works on texts; adds its results of texts."""
    operands = [name in texts for name in node.input]
    results = [name for name, yes in zip(node.output, text_results(node, operands), strict=False) if yes]
    texts.update(results)
    return any(operands) or bool(results)


def _grouped(graph: Any, hosts: list[bool]) -> list[Stage]:
    """Nodes by the number of times that what they are computed from changes between host and program: even numbers are on the host."""
    level: dict[str, int] = {}
    groups: dict[int, list[Any]] = {}
    for node, host in zip(graph.node, hosts, strict=True):
        at = max((level.get(name, 0) for name in _used(node)), default=0)
        at += (at % 2 == 0) != host
        groups.setdefault(at, []).append(node)
        level.update(dict.fromkeys(node.output, at))
    wanted = {o.name for o in graph.output}
    uses = {at: {name for node in nodes for name in _used(node)} for at, nodes in groups.items()}
    stages = []
    for at, nodes in sorted(groups.items()):
        made = [name for node in nodes for name in node.output if name]
        others = wanted.union(*(names for other, names in uses.items() if other != at))
        stages.append(Stage(at % 2 == 0, nodes, sorted(uses[at] - set(made)), [name for name in made if name in others]))
    return stages


def _used(node: Any) -> set[str]:
    """The names that a node reads, those inside of its graphs included."""
    found = {name for name in node.input if name}
    todo = [g for a in node.attribute for g in ([a.g] if a.HasField("g") else list(a.graphs))]
    while todo:
        graph = todo.pop()
        found.update(o.name for o in graph.output)
        for inner in graph.node:
            found.update(name for name in inner.input if name)
            todo += [g for a in inner.attribute for g in ([a.g] if a.HasField("g") else list(a.graphs))]
    return found


class Staged:
    """A model run stage by stage; see the module."""

    def __init__(self, model: Model, stages: list[Stage], session: Callable[[Model], Any], fallback: bool = False) -> None:
        self.model, self.stages, self._session = model, stages, session
        graph = model.proto.graph
        self._weights = {t.name: t for t in graph.initializer}
        self._inputs = {i.name: i for i in graph.input}
        self._sessions: dict[Any, Any] = {}
        programs = [node for stage in stages if not stage.host for node in stage.nodes]
        list_missing(Model(_of_nodes(model.proto, programs), model.opsets, model.functions, model.folder, model.file), fallback)

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The results, in the order of the model."""
        values = {name: self._given(name, value) for name, value in feeds.items()}
        for number, stage in enumerate(self.stages):
            if stage.host:
                self._on_host(stage, values)
            else:
                self._as_program(number, stage, values)
        return [self._value(o.name, values) for o in self.model.proto.graph.output]

    def _given(self, name: str, value: Any) -> Any:
        if self._inputs[name].type.tensor_type.elem_type != STRING:
            return value
        found, dims = as_texts(value, f'input "{name}"'), self._inputs[name].type.tensor_type.shape.dim
        if self._inputs[name].type.tensor_type.HasField("shape"):
            fits = len(dims) == found.ndim and all(
                not d.HasField("dim_value") or d.dim_value == n for d, n in zip(dims, found.shape, strict=True)
            )
            if not fits:
                raise ShapeError(f'input "{name}" has the shape {found.shape}, which is not that of the model')
        return found

    def _value(self, name: str, values: dict[str, Any]) -> Any:
        """What a name stands for: computed before, or a literal of the model."""
        if name not in values:
            proto = self._weights.get(name)
            if proto is None:
                raise ModelFileError(f'onnx: nothing computes "{name}"')
            what = f'initializer "{name}"'
            values[name] = read_texts(proto, what) if proto.data_type == STRING else read_tensor(proto, what, self.model.folder)
        return values[name]

    def _on_host(self, stage: Stage, values: dict[str, Any]) -> None:
        for node in stage.nodes:
            domain = domain_of(node.domain)
            version = self.model.opsets.get(domain, 1)
            arrays = [self._value(name, values) if name else None for name in node.input]
            found = run_on_host(Call(node, domain, version, [a if a is None else np.asarray(a) for a in arrays]))
            values.update((name, array) for name, array in zip(node.output, found, strict=False) if name)

    def _as_program(self, number: int, stage: Stage, values: dict[str, Any]) -> None:
        passed = [name for name in stage.inputs if name in values]
        arrays = {name: values[name] if isinstance(values[name], list) else np.asarray(values[name]) for name in passed}
        key = (number, *((n, str(a.dtype), a.ndim) for n, a in arrays.items() if n not in self._inputs and not isinstance(a, list)))
        if key not in self._sessions:
            self._sessions[key] = self._session(self._part(stage, arrays))
        session = self._sessions[key]
        found = session.run({i.name: arrays[i.name] for i in session.inputs})
        values.update(zip(stage.outputs, found, strict=True))

    def _part(self, stage: Stage, arrays: dict[str, Any]) -> Model:
        """The model of one stage."""
        onnx, whole = load_onnx(), self.model.proto
        proto = _of_nodes(whole, stage.nodes)
        graph = proto.graph
        for name in stage.inputs:
            if name in self._weights and name not in arrays:
                graph.initializer.add().CopyFrom(self._weights[name])
            elif name in self._inputs:
                graph.input.add().CopyFrom(self._inputs[name])
            elif name in arrays and not isinstance(arrays[name], list):
                a = arrays[name]
                graph.input.append(onnx.helper.make_tensor_value_info(name, number_of(dtype(a.dtype)), [None] * a.ndim))
            elif name in arrays:
                raise UnsupportedError(f'onnx: "{name}" is a sequence, which cannot go between operators on texts and others')
        for sparse in whole.graph.sparse_initializer:
            graph.sparse_initializer.add().CopyFrom(sparse)
        for name in stage.outputs:
            graph.output.add(name=name)
        return Model(proto, self.model.opsets, self.model.functions, self.model.folder, self.model.file)


def _of_nodes(whole: Any, nodes: list[Any]) -> Any:
    """A model with some of the nodes of another one."""
    proto = load_onnx().ModelProto(ir_version=whole.ir_version, opset_import=whole.opset_import, functions=whole.functions)
    proto.graph.name = whole.graph.name or "model"
    proto.graph.node.extend(nodes)
    return proto
