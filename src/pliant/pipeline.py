"""From a program to a package: the steps, in order, each with what holds after it. Read this file first.

    PLIANT_SHOW=fuse,host python my_program.py      # prints the program after these steps; `all` for every one
    PLIANT_DISABLE=fuse,plan python my_program.py   # leaves optional ones out (`plan`: no memory is used twice; `records`: not tuned)

There are five phases: GRAPH optimizes the graph, LOWER makes operators loop programs, FUSE fuses these, LAYOUT depends on the target, CODE
schedules and compiles. Steps are verified and timed. What is shown is a whole program, whose text can be parsed and compiled from there.

As soon as a kernel is scheduled, LLVM compiles it in the background (`codegen/background_compile.py`), while the next one is scheduled;
`emit` waits for the last one and links. Each kernel goes through passes of its own: `KERNEL_PASSES` in `lower/schedule_kernels.py`, then
`LOOP_PASSES` in `loop/lowering.py` (for C also `SOURCE_PASSES` in `loop/source_lowering.py`), as the host program does too. Their names
work in `PLIANT_SHOW` like those of steps, and print the kernels that a pass changed; `PLIANT_VERIFY=1` verifies each of them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .cache_key import cache_key, options_text, patterns_text
from .compilation import State, Step, graph_pass
from .graph.node import (
    CallFunction,
    CallHost,
    CallLibrary,
    CallLoop,
    MatchCast,
    Op,
    annotation_exprs,
    relations,
    stride_exprs,
    walk_nodes,
)
from .program import Program
from .runtime.package import Package
from .step_watch import show_step, verify_step, warn_of_unknown, watch_loop_passes
from .support.cancellation import stop_if_asked
from .support.collector import fewer_collections
from .support.errors import Error
from .support.memos import forget
from .support.settings import read as read_settings
from .sym.expr import free_vars
from .target import Target
from .target import target as find_target
from .tuned_code import CodeStore, decisions_of

if TYPE_CHECKING:
    from .lower.kernel_store import KernelStore
    from .schedule.decisions import Decisions


def _call_libraries(s: State) -> State:
    if patterns_text() == "":
        return s
    from .graph.passes.call_libraries import call_libraries

    return replace(s, function=call_libraries(s.function))


def _winograd_convolutions(s: State) -> State:
    if not s.constants or not any(isinstance(n, Op) and n.op == "conv" for n in walk_nodes(s.function.nodes)):
        return s
    from .lower.winograd_convolutions import winograd_convolutions

    return replace(s, function=winograd_convolutions(s.function, s.target, s.decisions))


def _name_sizes(s: State) -> State:
    if s.checked or not any(isinstance(n, CallLoop) for n in walk_nodes(s.function.nodes)):  # messages of checks show sizes
        return s
    from .lower.layout.name_sizes import name_sizes

    return replace(s, function=name_sizes(s.function))


def _layout_nchwc(s: State) -> State:
    if not s.constants:
        return s
    from .lower.layout.layout_nchwc import layout_nchwc

    return replace(s, function=layout_nchwc(s.function, s.target, s.decisions))


def _choose_layouts(s: State) -> State:
    if not s.constants:
        return s
    from .lower.layout.choose_layouts import choose_layouts

    return replace(s, function=choose_layouts(s.function, s.target, s.decisions))


def _video(s: State) -> State:
    if s.video is None:
        return s
    from .lower.video.video import video

    return replace(s, function=video(s.function, s.video))


def _lift_constants(s: State) -> State:
    if not s.constants:
        return s
    from .lower.layout.lift_constants import lift_constants

    lifted = lift_constants(s.function)
    return replace(s, function=lifted.rest, load=lifted.load, derived=lifted.derived)


def _foreign_calls(s: State) -> State:
    if not any(isinstance(n, CallHost | CallLibrary) for n in walk_nodes(s.function.nodes)):
        return s
    from .lower.ops.foreign_calls import foreign_calls

    calls = foreign_calls(s.function, s.functions)
    return replace(s, function=calls.function, foreign_calls=calls)


def _unique_dims(s: State) -> State:
    if all(isinstance(n, CallLoop) for n in s.function.nodes):  # a kernel alone: only its parameters define dims
        annotations = [p.annotation for p in s.function.params]
        dims = {v for a in annotations for e in (*annotation_exprs(a), *stride_exprs(a)) for v in free_vars(e)}
        if len({v.name for v in dims}) == len(dims):
            return s
    from .graph.passes.unique_dims import unique_dims

    return replace(s, function=unique_dims(s.function))


def _use_relations(s: State) -> State:
    if not relations(s.function):
        return s
    from .graph.passes.use_relations import use_relations

    return replace(s, function=use_relations(s.function))


def _relations_to_calls(s: State) -> State:
    if not relations(s.function):
        return s
    from .lower.ops.relations_to_calls import relations_to_calls

    return replace(s, function=relations_to_calls(s.function))


def _narrow_dims(s: State) -> State:
    if not any(n.requires for n in s.function.nodes):
        return s
    from .graph.passes.narrow_dims import narrow_dims

    return replace(s, function=narrow_dims(s.function))


def _copy_elision(s: State) -> State:
    if sum(isinstance(n, CallLoop) for n in s.function.nodes) < 2:
        return s
    from .lower.host.copy_elision import copy_elision

    return replace(s, copy_elision=copy_elision(s.function))


def _promote_sizes(s: State) -> State:
    if s.checked or sum(isinstance(n, CallLoop) for n in walk_nodes(s.function.nodes)) < 2:  # messages of checks show sizes
        return s
    from .lower.layout.promote_sizes import promote_sizes

    return replace(s, function=promote_sizes(s.function, s.target, s.decisions))


def _without_fma(s: State) -> State:
    if s.target.has_fma:
        return s
    from .lower.ops.without_fma import without_fma

    return replace(s, function=without_fma(s.function), fused=False)


def _schedule(s: State) -> State:
    from .lower.schedule_kernels import Kernels

    kernels = Kernels(s.target, s.checked, s.assembly, s.decisions, watch_loop_passes(), s.kernel_store)
    return replace(s, function=kernels.function(s.function), kernels=kernels)


def _host(s: State) -> State:
    from .lower.host.copy_elision import NO_ELISION
    from .lower.host.host import build_host

    assert s.kernels is not None
    host = build_host(s.function, s.kernels.copy, s.poison, s.plan, s.checked, s.copy_elision or NO_ELISION)
    if s.fused:
        return replace(s, host=host)
    from .loop.passes.without_fma import without_fma

    return replace(s, host=replace(host, run=without_fma(host.run)))  # it computes scalars itself


def _emit(s: State) -> State:
    from .backend import backend_of
    from .lower.host.package import make_package

    assert s.host is not None
    assert s.kernels is not None
    assembly = s.assembly or backend_of(s.target).assembly(s.target, s.level, watch_loop_passes())
    code = assembly.finish((s.host.prepare, s.host.size, s.host.run))
    s.kernels.keep()
    package = make_package(s.function, s.host, code, (*s.constants, *s.derived), s.foreign_calls, s.computed)
    package = package._replace(interface=package.interface._replace(rules=s.kernels.rules(), layouts=s.kernels.layouts()))
    if s.load is None:
        return replace(s, package=package)
    machine = find_target("native") if s.load_here else s.target
    return replace(s, package=package._replace(load=_load_package(s, machine)))


def _load_package(s: State, machine: Target) -> Package:
    """Returns the package of the function `load` for a machine; its kernels are scheduled for the target, whose bits they compute."""
    assert s.load is not None
    start = replace(
        s, function=s.load, load=None, derived=(), foreign_calls=None, copy_elision=None, assembly=None, kernels=None, host=None
    )
    package = to_code(start, without(CODE, read_settings().disable), machine).package
    assert package is not None
    return package


def to_code(start: State, steps: Sequence[Step], machine: Target | None = None) -> State:
    """Runs steps to the last one; code is made on the way, for `machine` if that is not the target."""
    from .backend import backend_of

    machine = machine or start.target
    with backend_of(machine).assembly(machine, start.level, watch_loop_passes()) as assembly:
        return run_steps(replace(start, assembly=assembly), steps)


GRAPH: tuple[Step, ...] = (
    Step("unique_dims", _unique_dims, "different dims have different names"),
    Step(
        "inline_functions",
        graph_pass(".graph.passes.inline_functions:inline_functions", CallFunction),
        "no call of a graph function is left: one list of nodes",
    ),
    Step("use_relations", _use_relations, "no dim is declared equal to an expression of others"),
    Step(
        "call_libraries",
        _call_libraries,
        "every match of a registered pattern is a library call",
        optional=True,
    ),
    Step(
        "integer_products",
        graph_pass(".graph.passes.integer_products:integer_products", Op),
        "matmuls of dequantized tensors run on the integer codes",
        optional=True,
    ),
    Step(
        "fold_constants",
        graph_pass(".graph.passes.fold_constants:fold_constants", Op),
        "small values that depend on constants alone are constants",
        optional=True,
    ),
    Step(
        "fold_batch_norm",
        graph_pass(".graph.passes.fold_batch_norm:fold_batch_norm", Op),
        "the weights of a convolution contain the batch norm that follows it",
        optional=True,
    ),
    Step(
        "pointwise_convolutions",
        graph_pass(".graph.passes.pointwise_convolutions:pointwise_convolutions", Op),
        "1x1 convolutions are matmuls",
        optional=True,
    ),
    Step(
        "recognize_attention",
        graph_pass(".graph.passes.recognize_attention:recognize_attention", Op),
        "matmul, softmax, matmul is one attention operator",
        optional=True,
    ),
    Step(
        "combine_matmuls",
        graph_pass(".graph.passes.combine_matmuls:combine_matmuls", Op),
        "matmuls of one input by several weights are one matmul, if their results are only moved",
        optional=True,
    ),
    Step(
        "transposes_into_matmul",
        graph_pass(".graph.passes.transposes_into_matmul:transposes_into_matmul", Op),
        "transposes of a matmul's operands are part of the matmul",
        optional=True,
    ),
    Step("simplify", graph_pass(".graph.passes.simplify:simplify", Op), "no algebraic rewrite rule matches", optional=True),
    Step(
        "common_subexpressions",
        graph_pass(".graph.passes.common_subexpressions:common_subexpressions", least=2),
        "no pure node is computed twice",
        optional=True,
    ),
)

LOWER: tuple[Step, ...] = (
    Step(
        "winograd_convolutions",
        _winograd_convolutions,
        "3x3 convolutions of many channels take Winograd's algorithm, with weights transformed when the program is loaded",
        optional=True,
    ),
    Step("lower_ops", graph_pass(".lower.ops.lower_ops:lower_ops", Op), "every operator that computes is a call of a loop program"),
    Step("dead_code", graph_pass(".graph.passes.dead_code:dead_code", least=2), "every node is needed for a result", optional=True),
    Step("relations_to_calls", _relations_to_calls, "loop programs have the declared relations between their dims as conditions"),
    Step("resolve_casts", graph_pass(".lower.ops.resolve_casts:resolve_casts", MatchCast), "every symbolic dim is defined by a parameter"),
    Step("narrow_dims", _narrow_dims, "a condition on a dim that every run checks is part of the dim's contract"),
    Step(
        "infer_blocks",
        graph_pass(".lower.ops.infer_blocks:infer_blocks", CallLoop),
        "plain loop nests have blocks, where the iterator kinds are certain",
    ),
)

FUSE: tuple[Step, ...] = (
    Step(
        "fold_data_movement",
        graph_pass(".lower.fusion.fold_data_movement:fold_data_movement", CallLoop, least=2),
        "permutes and slices around a template are part of its loads and stores",
        optional=True,
        part_of="fuse",
    ),
    Step(
        "rematerialize",
        graph_pass(".lower.fusion.rematerialize:rematerialize", CallLoop, least=2),
        "a cheap value with several readers is recomputed by each of them",
        optional=True,
        part_of="fuse",
    ),
    Step(
        "fuse",
        graph_pass(".lower.fusion.fuse:fuse", CallLoop, least=2),
        "elementwise loop programs have joined their producers and consumers",
        optional=True,
    ),
)

# What depends on the target: layouts of weights and images, and what is computed when a program is loaded.
LAYOUT: tuple[Step, ...] = (
    Step("name_sizes", _name_sizes, "every size that a loop program uses as a whole is one symbol", optional=True),
    Step(
        "layout_nchwc",
        _layout_nchwc,
        "images between convolutions are in blocks of channels (NCHWc)",
        optional=True,
        part_of="choose_layouts",
    ),
    Step("choose_layouts", _choose_layouts, "weights are packed in the layout that their kernels read", optional=True),
    Step(
        "video",
        _video,
        "in the program of a video stream, images are state, and only pixels that changed since the last frame are computed",
    ),
    Step("lift_constants", _lift_constants, "what depends on constants alone is computed once, when the program is loaded", optional=True),
    Step("foreign_calls", _foreign_calls, "Python and library functions are called through an address"),
    Step(
        "copy_elision",
        _copy_elision,
        "copies that only move ranges of memory are marked, so that the host program can elide them",
        optional=True,
    ),
)

# From scheduled loop programs to code. What is computed when a program is loaded goes through this phase on its own.
CODE: tuple[Step, ...] = (
    Step(
        "promote_sizes",
        _promote_sizes,
        "kernels that differ only in sizes share one kernel, where the schedule does not depend on these sizes",
        optional=True,
    ),
    Step("without_fma", _without_fma, "on a machine without FMA, only an fma that a user wrote is left", optional=True),
    Step(
        "schedule",
        _schedule,
        "every kernel is scheduled once, takes its workspace as a parameter, and is being compiled in the background",
    ),
    Step("host", _host, "memory is planned; argument checks, shape arithmetic and launches are loop programs"),
    Step("emit", _emit, "everything is one blob without undefined symbols, with its interface"),
)

STEPS: tuple[Step, ...] = (*GRAPH, *LOWER, *FUSE, *LAYOUT, *CODE)


def steps_to(last: str) -> tuple[Step, ...]:
    """Returns the steps of the pipeline up to the one of that name, which is the last of them."""
    names = [s.name for s in STEPS]
    return STEPS[: names.index(last) + 1]


def steps_after(name: str) -> tuple[Step, ...]:
    """Returns the steps of the pipeline after the one of that name."""
    return STEPS[len(steps_to(name)) :]


def without(steps: Sequence[Step], names: Collection[str]) -> tuple[Step, ...]:
    """Returns the steps except those with these names, and those that only prepare one of them."""
    return tuple(s for s in steps if s.name not in names and s.part_of not in names)


def compile_program(
    program: Program,
    target: str | Target = "native",
    checked: bool = False,
    cache: bool = True,
    load_here: bool = False,
    decisions: Mapping[str, Any] | None = None,
    effort: str = "full",
    accuracy: str = "full",
    records: Sequence[str] | None = (),
) -> Package:
    """Compiles a program for a target and returns its package; takes it from the code cache if it is there.

    With `load_here`, what is computed once from literals is code for this machine, which computes the same bits. `checked` adds run-time
    checks of accesses; `decisions`, `effort` and `accuracy` change choices of schedules, and a decision that no kernel has raises an Error.
    `records` are records of tuning that came with the program; those of the user go before them. None leaves all of them out.
    """
    machine = find_target(target)
    disabled = check_disabled(read_settings().disable)
    asked = decisions_of(decisions, effort, records, accuracy)
    codes = CodeStore(asked)
    options = options_text(machine, disabled, asked.text(), load_here)
    cache = cache and options is not None
    key = b"" if options is None else cache_key(program, machine, checked) + options.encode()
    if cache and (found := codes.get(key)) is not None:
        return Package.from_bytes(found)
    kernels = None
    if cache and options is not None and not asked.values:
        from .lower.kernel_store import kernel_store

        kernels = kernel_store(options, read_settings())
    try:
        with fewer_collections():
            if cache and options is not None and not checked and any(c.ndim for c in program.constants):
                package = _compile_for_any_weights(program, machine, load_here, asked, options, codes, kernels)
            else:
                package = compile_as_far_as("emit", program, machine, checked, load_here, asked, kernels).finished
                asked.check_used()
    finally:
        forget()
    if cache:
        codes.put(key, package.to_bytes())
    return package


def _compile_for_any_weights(
    program: Program, machine: Target, load_here: bool, asked: Decisions, options: str, codes: CodeStore, kernels: KernelStore | None
) -> Package:
    """Returns the package of a program; takes it from the code cache if a program was compiled that differs only in values of weights."""
    from .weightless import Weightless

    last = GRAPH[-1].name  # no later step reads the values of a literal that is not a scalar, so the code is the same
    state = compile_as_far_as(last, program, machine, load_here=load_here, decisions=asked, kernels=kernels)
    weightless = Weightless(state.function, program.constants, machine, options, codes)
    package = weightless.get()
    if package is None:
        rest = without(steps_after(last), read_settings().disable)
        package = to_code(replace(state, computed=weightless.computed), rest).finished
        asked.check_used()
        weightless.put(package)
    return weightless.filled(package)


def compile_as_far_as(
    last: str,
    program: Program,
    machine: Target,
    checked: bool = False,
    load_here: bool = False,
    decisions: Decisions | None = None,
    kernels: KernelStore | None = None,
) -> State:
    """Returns the state after the step `last`, without steps that `PLIANT_DISABLE` names; options are those of `compile_program`."""
    from .schedule.decisions import Decisions

    disabled = check_disabled(read_settings().disable)
    if any(f.attrs.external is not None for f in program.kernels):
        from .lower.ops.foreign_calls import refuse_addresses

        refuse_addresses(program.entry)
    start = State(program.entry, machine, program.constants, checked=checked, plan="plan" not in disabled, functions=program.functions)
    start = replace(start, load_here=load_here, decisions=decisions or Decisions(), kernel_store=kernels)
    steps = without(steps_to(last), disabled)
    return to_code(start, steps) if last == "emit" else run_steps(start, steps)


def check_disabled(names: frozenset[str]) -> frozenset[str]:
    """Returns the step names in `PLIANT_DISABLE`; raises if one is not the name of an optional step, `plan` or `records`."""
    optional = {s.name for s in STEPS if s.optional} | {"plan", "records"}
    for name in sorted(names - optional):
        raise Error(f"PLIANT_DISABLE: there is no optimization `{name}`", facts=["there are: " + ", ".join(sorted(optional))])
    return names


def run_steps(state: State, steps: Sequence[Step] = STEPS) -> State:
    """Runs steps on a state and returns the last one; verifies what each changed, and prints those that `PLIANT_SHOW` names."""
    settings = read_settings()
    warn_of_unknown(settings.show, tuple(s.name for s in STEPS))
    for step in steps:
        stop_if_asked()
        start = time.perf_counter()
        after = step.run(state)
        if settings.shows(step.name):
            show_step(step, state, after, time.perf_counter() - start)
        verify_step(step, state, after)
        state = after
    return state
