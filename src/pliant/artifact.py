"""Artifacts: saves a compiled program as one `.pliant` file, and loads it without compiling on the same kind of machine.

    f.save("model.pliant")
    f = pliant.load("model.pliant")
    f = pickle.loads(pickle.dumps(f))               # the same bytes without a file: how other processes and machines get programs

A file (runtime/container.py) has a portable part and one part for each target:

    contract   `f.contract` as JSON                                    portable
    program    the text of the program; the tensor of each literal     portable
    layers     the user's layer that each node comes from              portable
    calling    the trees of arguments and results, as JSON (optional)  portable
    video      of a video stream: its maps and limits, as JSON         portable
    tensor     the bytes of a literal, memory-mapped (mmap)            portable
    code       a package: machine code and its interface               one for each target

The metadata of the code says which records of tuning it was compiled with; they are used if it is compiled again.

If no code part fits the machine (or it is from a Pliant with another binary interface), the program is compiled again, with a notice on
stderr. Checksums of everything but the tensors are verified on reading; `verify=True` verifies the tensors too. Machine code is trusted:
load only files from people whose programs you would run. `recompile=True` ignores the code in the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .dtype import ALL
from .dtype import dtype as to_dtype
from .program import Program
from .provenance import Provenance
from .runtime import container, interface
from .runtime.container import Container, Section, Sections, Writer, broken
from .runtime.ctx import Ctx
from .runtime.executable import Executable
from .runtime.loading import open_package
from .runtime.package import ENTRIES, Package
from .runtime.pytree import checked_description
from .support.errors import Error, InternalError, ModelFileError, UnsupportedError
from .target import Target
from .target import target as find_target

if TYPE_CHECKING:
    from .graph.node import Function

Array = np.ndarray[Any, Any]
# Attributes of a function that a file holds as JSON, and what checks them.
_DESCRIPTIONS: dict[str, Callable[[Any], Any]] = {"calling": checked_description, "video": lambda data: data}


def fingerprint() -> str:
    """Returns a hash of the binary interface between code and runtime; code with another fingerprint is not called."""
    inner = [interface.Input, interface.Output, interface.Symbol, interface.Site, interface.Constant]
    fields = [(r.__name__, [(k, str(v)) for k, v in r.__annotations__.items()]) for r in (Package, interface.Interface, *inner)]
    layout = [(f[0], str(f[1])) for f in Ctx._fields_]
    return hashlib.sha256(repr((fields, layout, ENTRIES)).encode()).hexdigest()


# Writing.


def save(f: Executable, provenance: Provenance, path: str | os.PathLike[str], targets: Sequence[str | Target] = ()) -> None:
    """Writes an executable to a file, with its program, its code, code for additional targets, and its literals.

    Raises UnsupportedError if the program calls a Python function.
    """
    from . import __version__

    write = _content(f, provenance, targets)
    with Writer(path, __version__) as w:
        write(w)


def to_bytes(f: Executable, provenance: Provenance, more: Callable[[Sections], None] | None = None) -> bytes:
    """Returns the content of the file that `save` would write; `more` adds sections of its own. Raises as `save` does."""
    from . import __version__

    write = _content(f, provenance)

    def all_sections(w: Sections) -> None:
        write(w)
        if more is not None:
            more(w)

    return container.to_bytes(all_sections, __version__)


def _content(f: Executable, provenance: Provenance, targets: Sequence[str | Target] = ()) -> Callable[[Sections], None]:
    """Returns the function that writes the sections of an executable; compiles it for additional targets first."""
    from .pipeline import compile_program

    program = provenance.program
    _refuse_callbacks(program.entry)
    text, literals = str(program), program.constants
    names = _names(program)
    _check_text(program, text)
    others = dict.fromkeys(find_target(t) for t in ([targets] if isinstance(targets, str) else targets))
    parts = [
        (provenance.target, f.package),
        *((t, compile_program(program, t, provenance.checked, accuracy=provenance.accuracy)) for t in others if t != provenance.target),
    ]

    def write(w: Sections) -> None:
        contract = {"name": f.interface.name, "inputs": f.inputs, "outputs": f.outputs, "dims": f.dims}
        shown = {k: v if isinstance(v, str) else [str(x) for x in v] for k, v in contract.items()}
        w.add("contract", "", json.dumps(shown).encode())
        numbers, unique = _numbered(literals)
        options = {"checked": provenance.checked} | ({"accuracy": "fast"} if provenance.accuracy == "fast" else {})
        w.add("program", f.interface.name, text.encode(), literals=numbers, names=names, **options)
        w.add("layers", "", json.dumps([n.origin for n in program.entry.nodes]).encode())
        for name in _DESCRIPTIONS:
            if name in program.entry.attrs:
                w.add(name, "", json.dumps(program.entry.attrs[name]).encode())
        for target, package in parts:
            described = {"machine": repr(replace(target, name="")), "arch": target.arch, "features": list(target.features)}
            described |= {"convention": target.convention, "form": package.blob.form}
            w.add("code", target.name, package.to_bytes(), interface=fingerprint(), **described)
        for number, array in enumerate(unique):
            w.add("tensor", str(number), array.reshape(-1).view(np.uint8), dtype=to_dtype(array.dtype).name, shape=list(array.shape))

    return write


def _refuse_callbacks(function: Function) -> None:
    """Raises UnsupportedError if the program calls a Python function: a file cannot hold one."""
    from .graph.node import CallFunction, CallHost, walk_nodes

    for n in walk_nodes(function.nodes):
        if isinstance(n, CallHost):
            name = getattr(n.fn, "__name__", repr(n.fn))
            raise UnsupportedError(
                f"the program calls the Python function `{name}`, which no file can hold",
                where=n.span,
                help="write it with operators or as a @kernel, or compile the program where it runs",
            )
        if isinstance(n, CallFunction):
            _refuse_callbacks(n.function)


def _names(program: Program) -> dict[str, int]:
    """Returns the number of each literal that the program's text refers to by name."""
    place = {id(array): number for number, array in enumerate(program.constants)}
    return {name: place[id(array)] for name, array in program.named_constants.items()}


def _numbered(literals: Sequence[Array]) -> tuple[list[int], list[Array]]:
    """Returns the tensor index of each literal, and the tensors; literals that share memory share one tensor."""
    indices: dict[Any, int] = {}
    unique: list[Array] = []
    numbers = []
    for array in literals:
        key = (array.__array_interface__["data"][0], array.shape, array.dtype.name) if array.size else id(array)
        if key not in indices:
            indices[key] = len(unique)
            unique.append(np.ascontiguousarray(array))
        numbers.append(indices[key])
    return numbers, unique


def _check_text(program: Program, text: str) -> None:
    """Raises InternalError unless the text parses back to the same program (up to the name of its entry).

    Other machines compile from the text alone.
    """
    from .graph.structural import same
    from .loop.structural import canonical_text

    back = Program.parse(text, constants=program.named_constants)
    kernels = [list(map(canonical_text, p.kernels)) for p in (back, program)]
    if not same(back.entry.with_(name=program.entry.name), program.entry) or kernels[0] != kernels[1]:
        raise InternalError(f"the text of `{program.entry.name}` does not mean the program that it was printed from")


# Reading.


def load(
    path: str | os.PathLike[str], threads: int | None = None, *, verify: bool = False, recompile: bool = False
) -> Executable:  # fmt: skip
    """Loads the `.pliant` file at `path`: uses its code if it fits this machine, else compiles it again, with a notice on stderr.

    `threads` fixes the number of threads of its calls. `verify` compares all sections with their checksums first. `recompile` compiles it
    in any case, without a notice. Raises ModelFileError for a damaged file.
    """
    file = container.read(path)
    if verify:
        for section in file.sections:
            section.check()
    return executable_of(file, threads, recompile=recompile)


def unpickled(content: bytes, threads: int | None) -> Executable:
    """Returns the executable of a pickle, which has the content of a `.pliant` file; loads it as `load` does, all sections verified."""
    return executable_of(container.parse(content, "this pickle of an executable"), threads)


def executable_of(file: Container, threads: int | None = None, *, recompile: bool = False) -> Executable:
    """Returns the executable of an open container, as `load` does of a file; sections of unknown kinds are ignored."""
    program = _only(file, "program")
    literals = _literals(file, program)
    checked = program.facts.get("checked") is True
    here = find_target("native")
    part = None if recompile else _fitting(file, here)
    accuracy = "fast" if program.facts.get("accuracy") == "fast" else "full"
    provenance = Provenance(lambda: _program(file, literals), here, checked, accuracy=accuracy)
    if part is not None:
        package = Package.from_bytes(bytes(part.check()))
    else:
        if not recompile:
            has = ", ".join(container.shown(s.name) for s in file.find("code")) or "none"
            print(f"pliant: {file.file} has no code for this machine (it has: {has}); compiling it", file=sys.stderr)
        from .pipeline import compile_program

        package = compile_program(provenance.program, here, checked, accuracy=accuracy, records=_records(file))
        literals = list(provenance.program.constants)
    try:
        executable = open_package(package, literals, (), threads, provenance)
        executable.call_with_trees(_descriptions(file).get("calling"))
        return executable
    except ValueError as problem:
        raise broken(file.file, str(problem)) from None


def _records(file: Container) -> list[str]:
    """Returns the records of tuning that the code in a file was compiled with; none of code that cannot be read."""
    lines: dict[str, None] = {}
    for section in file.find("code"):
        try:
            package = Package.from_bytes(bytes(section.check()))
        except ModelFileError:
            continue
        parts = [package, *([] if package.load is None else [package.load])]
        lines |= dict.fromkeys(r.record for part in parts for r in part.interface.rules if r.record)
    return list(lines)


def read_program(path: str | os.PathLike[str]) -> Program:
    """Returns the program of a `.pliant` file, to be compiled for another target or with other dims."""
    file = container.read(path)
    return _program(file, _literals(file, _only(file, "program")))


def _only(file: Container, kind: str) -> Section:
    sections = file.find(kind)
    if len(sections) != 1:
        raise broken(file.file, f"it has {len(sections)} sections `{kind}`, one is expected")
    return sections[0]


def _fitting(file: Container, here: Target) -> Section | None:
    """Returns the code for exactly this machine, else the code that uses the most features of it and no others; None if there is none."""
    ours = fingerprint()
    best, most = None, -1
    for part in file.find("code"):
        features = part.facts.get("features")
        if part.facts.get("interface") != ours or part.facts.get("arch") != here.arch or not isinstance(features, list):
            continue
        if part.facts.get("convention") != here.convention or part.facts.get("form") != "flat":
            continue
        if part.facts.get("machine") == repr(replace(here, name="")):
            return part
        if all(isinstance(x, str) and x in here.features for x in features) and len(features) > most:
            best, most = part, len(features)
    return best


def _literals(file: Container, program: Section) -> list[Array]:
    """Returns the literals of the program by index, as views of the mapped file; raises ModelFileError if one is not there."""
    tensors = [_tensor(s) for s in file.find("tensor")]
    numbers = program.facts.get("literals")
    if not isinstance(numbers, list) or not all(type(n) is int and 0 <= n < len(tensors) for n in numbers):
        raise broken(file.file, "its program names tensors that are not there")
    return [tensors[n] for n in numbers]


def _tensor(section: Section) -> Array:
    """Returns a section as an array; raises ModelFileError if its untrusted dtype, shape and size do not fit together."""
    name, shape = section.facts.get("dtype"), section.facts.get("shape")
    if not isinstance(name, str) or name not in ALL or not isinstance(shape, list) or len(shape) > 32:
        raise broken(section.file, f"tensor {container.shown(section.name)} has no known type or shape")
    if not all(type(n) is int and 0 <= n < 2**63 for n in shape):
        raise broken(section.file, f"tensor {container.shown(section.name)} has a shape that is none")
    dtype = ALL[name].numpy()
    size = dtype.itemsize if 0 not in shape else 0
    for n in shape:
        size *= n
        if size > len(section.data):
            break
    if size != len(section.data):
        raise broken(section.file, f"tensor {container.shown(section.name)} of shape {shape[:8]} has {len(section.data)} bytes")
    return np.frombuffer(section.data, dtype).reshape(shape) if size else np.zeros(shape, dtype)


def _program(file: Container, literals: Sequence[Array]) -> Program:
    """Parses the program in the portable part of a `.pliant` file; raises ModelFileError if it cannot be parsed."""
    section = _only(file, "program")
    names = section.facts.get("names")
    if not isinstance(names, dict) or not all(type(n) is int and 0 <= n < len(literals) for n in names.values()):
        raise broken(file.file, "its program has names for literals that are not there")
    try:
        text = bytes(section.check()).decode()
        program = Program.parse(text, f"{file.file}:program", {name: literals[n] for name, n in names.items()})
    except (Error, ValueError, RecursionError, MemoryError) as problem:
        what = problem.what if isinstance(problem, Error) else str(problem)
        raise broken(file.file, f"its program cannot be read: {what}") from None
    name = section.name if section.name.isidentifier() else program.entry.name
    if program.kernel is not None and name == program.entry.name:
        return program
    entry = _with_layers(file, program.entry.with_(name=name))
    return Program(entry.with_(attrs={**entry.attrs, **_descriptions(file)}))


def _descriptions(file: Container) -> dict[str, Any]:
    """Returns what a file says of calls of its program, by the name of the section; raises ModelFileError for a damaged description.

    `video/program.py` checks that of a stream against the program.
    """
    found: dict[str, Any] = {}
    for name, check in _DESCRIPTIONS.items():
        for section in file.find(name):
            try:
                found[name] = check(json.loads(bytes(section.check())))
            except (ValueError, RecursionError):
                raise broken(file.file, f"its section `{name}` cannot be read") from None
    return found


def _with_layers(file: Container, entry: Function) -> Function:
    """Restores the user's layer names of the nodes; leaves them out if the section is missing or does not match.

    Raises ModelFileError if the section is no JSON.
    """
    for section in file.find("layers"):
        try:
            layers = json.loads(bytes(section.check()))
        except (ValueError, RecursionError):
            raise broken(file.file, "its layers are not JSON") from None
        if isinstance(layers, list) and len(layers) == len(entry.nodes) and all(_texts(o) for o in layers):
            return entry.with_(nodes=tuple(n.with_(origin=tuple(o)) for n, o in zip(entry.nodes, layers, strict=True)))
    return entry


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(t, str) for t in value)
