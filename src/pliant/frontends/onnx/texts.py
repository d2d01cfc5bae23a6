"""Runs models with string tensors: partitions them into stages that alternate between the host and compiled programs.

    stages = text_stages(model)             # None if there are no strings
    run = Staged(model, stages, session)    # `session` creates a session for the model of one stage

A node runs on the host if an operand or result is a string tensor (`text_operators.py`). The nodes between become a model of their own.
Its input types are those of the arrays that arrive, so it is created when they arrive for the first time.
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
    """A record of nodes that run together, on the host or compiled: names that they read and that other stages read."""

    host: bool
    nodes: list[Any]
    inputs: list[str]
    outputs: list[str]


def text_stages(model: Model) -> list[Stage] | None:
    """Returns the stages of a model; None if it has no strings. Raises UnsupportedError for string operators that are not supported."""
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
    """True if a node has string operands or results; adds its string results to `texts`."""
    operands = [name in texts for name in node.input]
    results = [name for name, yes in zip(node.output, text_results(node, operands), strict=False) if yes]
    texts.update(results)
    return any(operands) or bool(results)


def _grouped(graph: Any, hosts: list[bool]) -> list[Stage]:
    """Groups nodes by level: the number of switches between host and program on the way to them. Even levels run on the host."""
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
        outputs = [name for node in nodes for name in node.output if name]
        others = wanted.union(*(names for other, names in uses.items() if other != at))
        stages.append(Stage(at % 2 == 0, nodes, sorted(uses[at] - set(outputs)), [name for name in outputs if name in others]))
    return stages


def _used(node: Any) -> set[str]:
    """Returns the names that a node reads, including those in its subgraphs."""
    names = {name for name in node.input if name}
    todo = [g for a in node.attribute for g in ([a.g] if a.HasField("g") else list(a.graphs))]
    while todo:
        graph = todo.pop()
        names.update(o.name for o in graph.output)
        for inner in graph.node:
            names.update(name for name in inner.input if name)
            todo += [g for a in inner.attribute for g in ([a.g] if a.HasField("g") else list(a.graphs))]
    return names


class Staged:
    """A model with string tensors that runs stage by stage: nodes with strings on the host, those between them as compiled programs.

    The program of a stage is compiled when arrays of new types and ranks arrive.
    """

    def __init__(self, model: Model, stages: list[Stage], session: Callable[[Model], Any], fallback: bool = False) -> None:
        self.model, self.stages, self._session = model, stages, session
        graph = model.proto.graph
        self._weights = {t.name: t for t in graph.initializer}
        self._inputs = {i.name: i for i in graph.input}
        self._sessions: dict[Any, Any] = {}
        programs = [node for stage in stages if not stage.host for node in stage.nodes]
        list_missing(Model(_of_nodes(model.proto, programs), model.opsets, model.functions, model.folder, model.file), fallback)

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Runs all stages; returns the outputs in model order."""
        values = {name: self._given(name, value) for name, value in feeds.items()}
        for number, stage in enumerate(self.stages):
            if stage.host:
                self._on_host(stage, values)
            else:
                self._as_program(number, stage, values)
        return [self._value(o.name, values) for o in self.model.proto.graph.output]

    def _given(self, name: str, value: Any) -> Any:
        """Returns an input of the model in the form that stages take: strings are converted.

        Raises ShapeError if their shape is not declared so.
        """
        if self._inputs[name].type.tensor_type.elem_type != STRING:
            return value
        texts, dims = as_texts(value, f'input "{name}"'), self._inputs[name].type.tensor_type.shape.dim
        if self._inputs[name].type.tensor_type.HasField("shape"):
            fits = len(dims) == texts.ndim and all(
                not d.HasField("dim_value") or d.dim_value == n for d, n in zip(dims, texts.shape, strict=True)
            )
            if not fits:
                raise ShapeError(f'input "{name}" has the shape {texts.shape}, which is not that of the model')
        return texts

    def _value(self, name: str, values: dict[str, Any]) -> Any:
        """Returns the value of a name: computed by an earlier stage, or an initializer of the model.

        Raises ModelFileError if it is neither.
        """
        if name not in values:
            proto = self._weights.get(name)
            if proto is None:
                raise ModelFileError(f'onnx: nothing computes "{name}"')
            what = f'initializer "{name}"'
            values[name] = read_texts(proto, what) if proto.data_type == STRING else read_tensor(proto, what, self.model.folder)
        return values[name]

    def _on_host(self, stage: Stage, values: dict[str, Any]) -> None:
        """Runs the nodes of a host stage; adds their results to `values`."""
        for node in stage.nodes:
            domain = domain_of(node.domain)
            version = self.model.opsets.get(domain, 1)
            arrays = [self._value(name, values) if name else None for name in node.input]
            results = run_on_host(Call(node, domain, version, [a if a is None else np.asarray(a) for a in arrays]))
            values.update((name, array) for name, array in zip(node.output, results, strict=False) if name)

    def _as_program(self, number: int, stage: Stage, values: dict[str, Any]) -> None:
        """Runs a compiled stage; adds its results to `values`. Compiles it for each combination of input types and ranks."""
        passed = [name for name in stage.inputs if name in values]
        arrays = {name: values[name] if isinstance(values[name], list) else np.asarray(values[name]) for name in passed}
        key = (number, *((n, str(a.dtype), a.ndim) for n, a in arrays.items() if n not in self._inputs and not isinstance(a, list)))
        if key not in self._sessions:
            self._sessions[key] = self._session(self._part(stage, arrays))
        session = self._sessions[key]
        results = session.run({i.name: arrays[i.name] for i in session.inputs})
        values.update(zip(stage.outputs, results, strict=True))

    def _part(self, stage: Stage, arrays: dict[str, Any]) -> Model:
        """Returns the model of one stage, whose inputs have the types and ranks of `arrays`; raises UnsupportedError for a sequence."""
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
    """Returns an ONNX model with the given nodes, and the opsets and functions of `whole`."""
    proto = load_onnx().ModelProto(ir_version=whole.ir_version, opset_import=whole.opset_import, functions=whole.functions)
    proto.graph.name = whole.graph.name or "model"
    proto.graph.node.extend(nodes)
    return proto
