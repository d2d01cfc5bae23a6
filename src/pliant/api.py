"""The main user API: the decorators `kernel` and `function`, and `compile` and `parse`.

@kernel
def scale(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = x[i] * 2.0

scale(x)                        # compiled at the first call
f = pliant.compile(scale)       # an Executable, with its contract
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from .graph.node import Callee, Value
from .graph.node import Function as GraphFunction
from .loop.parse import parse_kernel
from .loop.stmt import Func
from .lower.callee import callee_of
from .pipeline import compile_program
from .program import Program
from .provenance import Provenance
from .runtime.executable import Executable
from .runtime.loading import open_package
from .support.cancellation import unwrapped_interrupts
from .support.errors import Error, InternalError, UnsupportedError
from .support.progress import listening
from .support.source import caller_span
from .sym.expr import Expr
from .target import Target
from .target import target as find_target

if TYPE_CHECKING:
    from .loop.analysis.proof import Access
    from .sym.typing_stubs import Result


T = TypeVar("T")


class _Callable:
    """The base class of Kernel and Function: compiles at the first call with arrays."""

    def __init__(self, fn: Callable[..., Any] | None, name: str) -> None:
        self.__name__ = name
        self.__doc__ = fn.__doc__ if fn is not None else None
        self.__wrapped__ = fn
        self._executable: Executable | None = None

    def __call__(self, *args: Any, out: Any = None, **named: Any) -> Result:
        """Runs the compiled program; returns the outputs, or writes them to `out`. In the `forward` of a module it emits a graph node."""
        for a in args:
            if isinstance(a, Value):
                emitted: Result = self._inside(args)
                return emitted
        if self._executable is None:
            self._executable = compile(self)
        result: Result = self._executable(*args, out=out, **named)
        return result

    def _inside(self, args: tuple[Any, ...]) -> Any:
        """Emits a call into the graph function that is being built; subclasses implement it, here it raises NotImplementedError."""
        raise NotImplementedError


class Kernel(_Callable):
    """A loop program made by `@kernel`: callable with arrays, and from graph functions."""

    def __init__(self, func: Func, fn: Callable[..., Any] | None = None) -> None:
        super().__init__(fn, func.name)
        self.func = func
        self.callee: Callee = callee_of(func)

    def unproved_accesses(self) -> list[Access]:
        """Returns the memory accesses that cannot be proven in bounds; `compile(…, checked=True)` checks them at run time."""
        return Program.of_kernel(self.func).unproved_accesses()

    def _inside(self, args: tuple[Any, ...]) -> Any:
        from .graph.operators import active, operand

        values = [a if isinstance(a, Value | Expr | int | float) else operand(self.__name__, a) for a in args]
        outs = active(self.__name__).call_loop(self.callee, values)
        return outs[0] if len(outs) == 1 else outs

    def __repr__(self) -> str:
        return repr(self.func)


class Function(_Callable):
    """A graph function made by `@function`: callable with arrays, and from other graph functions."""

    def __init__(self, graph: GraphFunction, fn: Callable[..., Any] | None = None) -> None:
        super().__init__(fn, graph.name)
        self.graph = graph

    def _inside(self, args: tuple[Any, ...]) -> Any:
        from .graph.operators import active, operand

        outs = active(self.__name__).call_function(self.graph, [operand(self.__name__, a) for a in args])
        return outs[0] if len(outs) == 1 else outs

    def __repr__(self) -> str:
        return str(Program.of(self.graph))


@overload
def kernel(fn: Callable[..., Any]) -> Kernel: ...
@overload
def kernel(*, scheduled: bool = False) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(fn: Callable[..., Any] | None = None, *, scheduled: bool = False) -> Kernel | Callable[[Callable[..., Any]], Kernel]:
    """Parses a Python function as a loop program; with `scheduled=True` its loops are compiled as written, without default schedules."""
    if fn is None:
        return lambda f: _designed(lambda: _make_kernel(f, scheduled))
    return _designed(lambda: _make_kernel(fn, scheduled))


def _designed(make: Callable[[], T]) -> T:
    """Returns `make()`; raises a user's error without the compiler's stack frames, unless `PLIANT_DEBUG=1`."""
    try:
        return make()
    except Error as error:
        if os.environ.get("PLIANT_DEBUG") == "1" or isinstance(error, InternalError):
            raise
        raise error.with_traceback(None) from None


def _make_kernel(fn: Callable[..., Any], scheduled: bool) -> Kernel:
    from .loop.verify import verify_written

    func = parse_kernel(fn)
    if scheduled:
        func = func.with_(attrs=func.attrs.with_(scheduled=True))
    verify_written(func)
    return Kernel(func, fn)


def function(fn: Callable[..., Any]) -> Function:
    """Decorator: parses a Python function into a graph function, verifies it, and returns it as a `Function`."""
    from .graph.parse import parse_function
    from .graph.verify import verify

    def make() -> Function:
        graph = parse_function(fn)
        verify(graph)
        return Function(graph, fn)

    return _designed(make)


def compile(
    src: Any,
    target: str | Target = "native",
    dims: Mapping[str, Any] | None = None,
    threads: int | None = None,
    checked: bool = False,
    cache: bool = True,
    decisions: Mapping[str, Any] | None = None,
    effort: Literal["full", "fast"] = "full",
    accuracy: Literal["full", "fast"] = "full",
    example: tuple[Any, ...] | None = None,
    progress: Callable[[str], object] | bool | None = None,
) -> Executable:
    """Compiles `src` (a kernel, a function, a module, a Program or a model file) into one executable for every shape of its contract.

    `target` is this machine, or a CPU whose code it can run ("x86-64-v3"). `dims` sets, narrows or unifies dims (`Program.with_dims`).
    `threads` fixes the number of threads of its calls. `checked` adds run-time checks of accesses and index arithmetic. `cache` allows the
    code cache. `decisions` override choices of the default schedules, by name: {"c.tile": (6, 2)}. `pliant.explain` lists them and their
    domains. With `effort="fast"`, tiles are those that compile fastest: results have the same bits, but take longer to compute. With
    `accuracy="fast"`, convolutions may take algorithms that round more (`docs/programs.md` says how much). A PyTorch module needs an
    `example` of its arguments, and is compiled for their shapes: `pliant.from_torch` takes dynamic ones. `progress` is called with a text
    for each kernel; True shows it on stderr. Raises UnsupportedError if this machine cannot run code for the target, Error if `effort` or
    `accuracy` is neither of the two.
    """
    for name, mode in (("effort", effort), ("accuracy", accuracy)):
        if mode not in ("full", "fast"):
            raise Error(f"there is no {name} {mode!r}", where=caller_span(), help=f'{name} is "full" or "fast"')
    program = program_of(src) if example is None else _program_of_module(src, example)
    if dims:
        program = program.with_dims(dims)
    machine = find_target(target)
    _check_runs_here(machine)
    with unwrapped_interrupts(), listening(progress, program.entry.name):
        package = compile_program(program, machine, checked, cache, decisions=decisions, effort=effort, accuracy=accuracy)
    provenance = Provenance(lambda: program, machine, checked, decisions, effort, accuracy)
    executable = open_package(package, program.constants, program.functions, threads, provenance)
    executable.call_with_trees(program.entry.attrs.get("calling"))
    return executable


def _check_runs_here(machine: Target) -> None:
    """Raises UnsupportedError if this machine cannot run code for the target."""
    here = find_target("native")
    missing = sorted(set(machine.features) - set(here.features))
    if machine.arch != here.arch:
        lack = f"it is {here.arch}, not {machine.arch}"
    elif machine.convention != here.convention:
        lack = f"functions are called otherwise on {machine.os} than on {here.os}"
    elif missing:
        lack = f"it lacks {', '.join(missing[:6])}"
    else:
        return
    raise UnsupportedError(
        f"code for the target `{machine.name}` cannot run on this machine",
        where=caller_span(),
        facts=[lack],
        help=f'f.save("model.pliant", targets=["{machine.name}"]) makes code for other machines',
    )


def program_of(src: Any) -> Program:
    """Returns the program of a kernel, function, schedule, module or file; raises Error for other objects."""
    match src:
        case Program():
            return src
        case Kernel():
            return Program.of_kernel(src.func)
        case Function():
            return Program.of(src.graph)
        case Func():
            return Program.of_kernel(src)
        case GraphFunction():
            return Program.of(src)
    torch = sys.modules.get("torch")  # a module of torch exists only if torch is imported
    if torch is not None and isinstance(src, torch.nn.Module):
        help_ = 'pliant.compile(model, example=(x,)), or pliant.from_torch(model, (x,), dynamic_shapes={"x": {0: "n"}}) for dynamic dims'
        raise Error("a PyTorch module is compiled from an example of its arguments", where=caller_span(), help=help_)
    if torch is not None and isinstance(src, torch.export.ExportedProgram):
        return _program_of_module(src, ())
    schedules = sys.modules.get("pliant.schedule.schedule")  # a Schedule object exists only if the module is imported
    if schedules is not None and isinstance(src, schedules.Schedule):
        return Program.of_kernel(src.func)
    traced = src.to_program() if hasattr(src, "to_program") else None  # an nn.Module
    if isinstance(traced, Program):
        return traced
    if isinstance(src, str | os.PathLike):
        return _program_of_file(os.fspath(src))
    raise Error(
        f"cannot compile an object of type `{type(src).__name__}`",
        where=caller_span(),
        help="pass a @kernel, a @function, an nn.Module, a pliant.Program, or the path of a file",
    )


def _program_of_module(src: Any, example: tuple[Any, ...]) -> Program:
    """Returns the program of a PyTorch module for an example of its arguments; raises an Error if the example is no tuple."""
    from .frontends.torch import from_torch

    if not isinstance(example, tuple):
        raise Error("`example` is a tuple of arguments", where=caller_span(), help="one argument is written example=(x,)")
    return from_torch(src, example)


# File extension -> function that reads a program from the file.
READERS = {".onnx": ".frontends.onnx:from_onnx", ".pliant": ".artifact:read_program", ".pt2": ".frontends.torch:read_pt2"}


def _program_of_file(path: str) -> Program:
    """Reads the program of a file by its extension; raises UnsupportedError for others."""
    place = READERS.get(os.path.splitext(path)[1])
    if place is None:
        help_ = f"files that can be compiled end in {', '.join(READERS)}"
        raise UnsupportedError(f"no program can be read from {path}", where=caller_span(), help=help_)
    module, name = place.split(":")
    program: Program = getattr(import_module(module, __package__), name)(path)
    return program


def parse(text: str, file: str = "<text>", constants: Mapping[str, Any] | None = None) -> Program:
    """Parses `text`, a program as `str(program)` prints it, without executing anything; `constants` are its `named_constants`.

    Errors show lines of `file`, the name of the text. Raises an Error for an object that is no text, and for text that is no valid program.
    """
    if not isinstance(text, str):
        help_ = "pass the text that str(program) gives" if not isinstance(text, bytes) else "decode it first: text.decode()"
        raise Error(f"a program is parsed from text, not from an object of type `{type(text).__name__}`", where=caller_span(), help=help_)
    return Program.parse(text, file, constants)
