"""The backend of `torch.compile`: `torch.compile(model, backend="pliant", dynamic=True)`, found by its entry point.

One program serves all sizes: sizes of 0 and 1 are not special (`backed_size_oblivious`, set when the backend is first looked up). Weights
are literals, packed once; a program is made again if one is replaced or written to. What cannot be compiled runs in eager, and a warning
says so once: operators without a rule, calls outside of a program's contract, graphs for training. Calls never raise because of Pliant.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx.experimental import _config as _shapes

from .api import compile as compile_source
from .frontends.torch.importer import missing, operator_name
from .frontends.torch.region import import_region, supported_outputs
from .frontends.torch.table import decompositions
from .program import Program
from .runtime.executable import Executable

OPTIONS = frozenset({"threads", "checked"})
log = logging.getLogger("torch.pliant")
_shapes.backed_size_oblivious = True


def backend(gm: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None) -> Any:
    """Compiles a graph of Dynamo; called by torch. `options` may have `threads` and `checked`, as for `pliant.compile`.

    Returns the function that runs the graph: compiled, or in eager if gradients are wanted or it cannot be compiled. `mode` has no effect.
    Raises ValueError for other options.
    """
    from functorch.compile import make_boxed_func
    from torch._functorch.aot_autograd import aot_module_simplified

    unknown = set(options or {}) - OPTIONS
    if unknown:
        raise ValueError(f"unknown options of the backend pliant: {', '.join(sorted(unknown))}; there are {', '.join(sorted(OPTIONS))}")
    if torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in example_inputs):
        said("pliant: gradients are wanted, so the model runs in eager; call it under torch.no_grad() for inference")
        return gm.forward
    static = [_is_weight(x) for x in example_inputs]

    def inference(graph: Any, _inputs: Sequence[Any]) -> Any:
        """Returns the compiled form of a graph of operators, which aot_module_simplified calls; in eager, with a warning, if that fails."""
        placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
        fixed = static if len(static) == len(placeholders) else [False] * len(placeholders)
        try:
            return make_boxed_func(compiled(graph, fixed, dict(options or {})))
        except Exception as problem:
            said(f"pliant: a graph runs in eager, because it cannot be taken apart: {type(problem).__name__}: {str(problem)[:500]}")
            return make_boxed_func(graph.forward)

    whole, single = _tables()
    with whole:
        return aot_module_simplified(
            gm, example_inputs, fw_compiler=inference, inference_compiler=inference, decompositions=single,
            keep_inference_input_mutations=True,
        )  # fmt: skip


def _tables() -> tuple[Any, Any]:
    """Returns a context in which composites stay whole, and the table (a dict) of the other decompositions.

    A torch without the private names for this gives a context that does nothing, and the table of all.
    """
    from contextlib import nullcontext

    table = decompositions()
    try:  # private names of torch: without them composites are decomposed, for which there are rules too
        from torch.export.exported_program import _override_composite_implicit_decomp, _split_decomp_table_to_cia_and_python_decomp
    except ImportError:
        return nullcontext(), dict(table.items())
    composites, single = _split_decomp_table_to_cia_and_python_decomp(table)
    return _override_composite_implicit_decomp(composites), single


def _is_weight(x: Any) -> bool:
    """True for a parameter, or a buffer of a module: torch marks both as static."""
    return isinstance(x, torch.nn.Parameter) or getattr(x, "_dynamo_static_input_type", None) is not None


def said(message: str) -> None:
    """Logs a warning; the same text is logged once only."""
    torch._logging.warning_once(log, message)


def compiled(graph: Any, static: Sequence[bool], options: Mapping[str, Any]) -> Callable[..., Any]:
    """Returns a function that runs a graph: compiled as a whole, or in parts between operators without a rule.

    `static` tells which inputs are weights. The function takes the writes to inputs off the graph, and does them after each run.
    """
    written = _split_writes(graph)
    lacking = missing(graph.graph)
    if not lacking and supported_outputs(graph):
        return _Part(graph, static, written, options)
    names = sorted({operator_name(n.target) or str(n.target) for n in lacking})
    said(f"pliant: these operators run in eager: {', '.join(names) or 'results that are numbers'}")
    return _partitioned(graph, options, written)


def _split_writes(graph: Any) -> list[int]:
    """Takes the writes to inputs off a graph, in place: the new values become results at its end.

    Returns the numbers of the inputs that were written, in order of the writes.
    """
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    output = next(n for n in graph.graph.nodes if n.op == "output")
    written, values = [], []
    for node in list(graph.graph.nodes):
        if node.op == "call_function" and operator_name(node.target) == "aten.copy_" and node.args[0] in placeholders:
            written.append(placeholders.index(node.args[0]))
            values.append(node.args[1])
            node.replace_all_uses_with(node.args[1], propagate_meta=False)
            graph.graph.erase_node(node)
    if written:
        output.args = ((*output.args[0], *values),)
        graph.recompile()
    return written


class _Part:
    """A graph that is compiled at its first call, when the weights are known, and again when they changed.

    What cannot be compiled, or served by the program, runs in eager.
    """

    def __init__(self, graph: Any, static: Sequence[bool], written: Sequence[int], options: Mapping[str, Any]) -> None:
        self.graph, self.written, self.options = graph, written, options
        names = [n.name for n in graph.graph.nodes if n.op == "placeholder"]
        self.weights = [(k, names[k]) for k, s in enumerate(static) if s and k not in written]
        self.held: list[tuple[Any, int, int]] = []  # the weights that the program was made with, their versions and places
        self.program: tuple[Executable, tuple[int, ...], tuple[int | None, ...]] | None = None
        self.failed = False

    def __call__(self, *args: Any) -> Any:
        """Runs the graph on all its inputs; copies new values into inputs that it writes to, and returns the other results."""
        results = self._results(args)
        if not self.written:
            return results
        count = len(results) - len(self.written)
        for k, new in zip(self.written, results[count:], strict=True):
            args[k].copy_(new)
        return results[:count]

    def _results(self, args: Sequence[Any]) -> Any:
        """Returns the results of the graph, by the program or, where it cannot serve the call, in eager.

        After a compilation failed, all calls run in eager. Either failure is logged as a warning.
        """
        if self.failed:
            return self.graph.forward(*args)
        try:
            if self.program is None or self._written(args):
                self._make(args)
        except Exception as problem:
            self.failed = True
            said(f"pliant: a graph runs in eager, because it cannot be compiled: {type(problem).__name__}: {str(problem)[:500]}")
            return self.graph.forward(*args)
        assert self.program is not None
        call, arguments, outputs = self.program
        try:
            found = call(*[args[k].detach().contiguous() for k in arguments]) if arguments else call()
        except Exception as problem:
            said(f"pliant: a call runs in eager, because the program does not serve it: {type(problem).__name__}: {str(problem)[:500]}")
            return self.graph.forward(*args)
        several = found if isinstance(found, tuple) else (found,)
        return [None if k is None else args[-1 - k] if k < 0 else _tensor(several[k]) for k in outputs]

    def _written(self, args: Sequence[Any]) -> bool:
        """True if a weight is another tensor than the program was made with, was written to since, or has its memory elsewhere."""
        held = zip(self.weights, self.held, strict=True)
        return any(args[k] is not w or w._version != v or w.data_ptr() != place for (k, _), (w, v, place) in held)

    def _make(self, args: Sequence[Any]) -> None:
        """Compiles the graph with the weights of a call as literals, and remembers these to see when they change."""
        self.held = [(args[k], args[k]._version, args[k].data_ptr()) for k, _ in self.weights]
        region = import_region(self.graph, {name: args[k] for k, name in self.weights})
        options = {"threads": torch.get_num_threads(), **self.options}
        self.program = compile_source(Program.of(region.function), **options), region.arguments, region.outputs


def _tensor(x: Any) -> Any:
    """Returns a result as a torch tensor over the same memory: a program without tensor arguments returns arrays."""
    return x if isinstance(x, torch.Tensor) else torch.from_numpy(x)


def _partitioned(graph: Any, options: Mapping[str, Any], written: Sequence[int]) -> Callable[..., Any]:
    """Returns a function that runs a graph in parts: compiled ones, and in eager operators without a rule and sizes.

    The graph's last results are the new values of the inputs `written`, into which the function copies them.
    """
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import OperatorSupportBase

    lacking = set(missing(graph.graph))

    class Supported(OperatorSupportBase):  # type: ignore[misc]
        def is_node_supported(self, submodules: Any, node: Any) -> bool:
            val = node.meta.get("val")
            tensors = all(isinstance(v, torch.Tensor) for v in (val if isinstance(val, list | tuple) else [val]))
            return node.op == "call_function" and node not in lacking and tensors

    partitioner = CapabilityBasedPartitioner(graph, Supported(), allows_single_node_partition=True)
    fused = partitioner.fuse_partitions(partitioner.propose_partitions())
    for node in fused.graph.nodes:
        part = getattr(fused, node.target) if node.op == "call_module" else None
        if part is not None and not missing(part.graph) and supported_outputs(part):
            setattr(fused, node.target, _Module(_Part(part, [False] * len(node.args), (), options), part))
    return _Written(fused, written)


class _Module(torch.nn.Module):  # type: ignore[misc]
    """A compiled part as a module of a partitioned graph; it is called with the part's inputs."""

    def __init__(self, part: _Part, graph: Any) -> None:
        super().__init__()
        self.part, self.graph_module = part, graph

    def forward(self, *args: Any) -> Any:
        """Runs the part; returns its results, or its result if its graph returns one alone and not a list."""
        results = self.part(*args)
        output = next(n for n in self.graph_module.graph.nodes if n.op == "output")
        return results if isinstance(output.args[0], list | tuple) else results[0] if isinstance(results, list) else results


class _Written:
    """A partitioned graph whose last results are new values of the inputs with the numbers `written`."""

    def __init__(self, module: Any, written: Sequence[int]) -> None:
        self.module, self.written = module, written

    def __call__(self, *args: Any) -> Any:
        """Runs the graph, copies the last results into these inputs, and returns the others."""
        results = self.module(*args)
        count = len(results) - len(self.written)
        for k, new in zip(self.written, results[count:], strict=True):
            args[k].copy_(new)
        return results[:count]
