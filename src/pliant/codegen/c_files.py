"""Export of a whole program as C files: `NAME.c`, `NAME.h`, and `NAME.bin` if the weights are not in the source.

The header declares one function with the program's arguments by name. It fills the arrays of the ABI (docs/design/0001-abi.md) and calls
the host program, all in one source file that needs no library:

    int32_t mlp(const float *x, float *y, int64_t n, void *arena, int64_t arena_bytes);
    int64_t mlp_arena_bytes(int64_t n);
    const char *mlp_status_text(int32_t status);
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtype import ALL, f64, i64
from ..loop.stmt import Func
from ..runtime.call_frame import Layout
from ..runtime.contract import workspace_text
from ..runtime.interface import Interface
from ..support.record import dataclass
from .c_expr import RESERVED, Expressions, converted
from .c_render import CModule, render
from .c_types import Val, c_type, helpers_for, memory_type

Array = np.ndarray[Any, Any]
INSIDE = 4 << 20  # bytes of weights that are put into the source by default: compilers read about a megabyte per second
_ALIGNMENT = 64  # of each weight in the .bin file
_STATUS = {"OK": 0, "CANCELLED": 1, "NO_MEMORY": 3, "BAD_CALL": 4}
_ENTRIES = ("shapes", "prepare", "size", "run")
_CHECK = 16  # the status of the first check; those of further checks follow
_WORDS = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A record of a parameter of the exported C function: its declaration, its name, and its comment in the header."""

    declared: str
    name: str
    remark: str


def c_files(
    name: str, entries: Sequence[Func], interface: Interface, weights: Sequence[Array], inside: bool | None = None
) -> dict[str, bytes]:
    """Return the files (name -> content) of a program; `entries` are its functions `shapes`, `prepare`, `size` and `run`.

    `weights` are the arrays of the program's constants. `inside` puts them into the source; None does so up to `INSIDE` bytes.
    """
    prefix = _identifier(name)
    if inside is None:
        inside = sum(a.nbytes for a in weights) <= INSIDE
    module = render(entries, "static ")
    files = _Files(prefix, module, interface, [np.ascontiguousarray(a) for a in weights], inside)
    texts = {f"{prefix}.h": files.header().encode(), f"{prefix}.c": files.source().encode()}
    return texts if inside else {**texts, f"{prefix}.bin": files.weights_file()}


def _identifier(name: str) -> str:
    """Return the name as a C identifier, with `model_` in front if the source uses it otherwise or it does not begin with a letter."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    taken = plain in {*RESERVED, "main", *_ENTRIES} or plain.startswith(("pl_", "f_", "constant_"))
    return plain if plain[:1].isalpha() and not taken else f"model_{plain}"


class _Files:
    """Writes the header, the source and the weights file of one exported C program."""

    def __init__(self, prefix: str, module: CModule, interface: Interface, weights: list[Array], inside: bool) -> None:
        self.prefix, self.upper = prefix, prefix.upper()
        self.layout, self.module, self.interface = Layout(interface), module, interface
        self.weights, self.inside = weights, inside
        names = Expressions(lambda fn, d: fn)
        names.names |= {"arena", "arena_bytes", "weights", "dims", "buffers", "code", "never", prefix, *_ENTRIES}
        i = interface
        self.inputs = [self._input(names.name(x.name), x.kind == "tensor", x.dtype, x.consumed, str(x)) for x in i.inputs]
        self.outputs = {
            n: self._input(names.name(o.name), True, o.dtype, True, f"{o}: a result") for n, o in enumerate(i.outputs) if o.alias is None
        }
        self.symbols = [Parameter("int64_t ", names.name(s.name), str(s)) for s in i.symbols]
        self.counts = [
            Parameter("int64_t *", names.name(f"count_{c}"), f"count_{c}: the {c} of the results, counted while it runs") for c in i.counts
        ]

    def _input(self, name: str, tensor: bool, dtype: str, written: bool, remark: str) -> Parameter:
        d = ALL[dtype]
        return Parameter(f"{'' if written else 'const '}{memory_type(d)} *" if tensor else f"{c_type(d)} ", name, remark)

    # The header.

    def parameters(self) -> list[Parameter]:
        """Return the parameters of the exported C function, in order: arguments, results, run-time counts, dims, weights, memory.

        There is one for the weights only if they are in a file of their own.
        """
        weights = (
            [] if self.inside else [Parameter("const void *", "weights", f"weights: the bytes of {self.prefix}.bin, aligned to 8 bytes")]
        )
        arena = [
            Parameter("void *", "arena", "arena: memory for the call, aligned to 8 bytes"),
            Parameter("int64_t ", "arena_bytes", f"arena_bytes: its size, at least what {self.prefix}_arena_bytes says"),
        ]
        return [*self.inputs, *self.outputs.values(), *self.counts, *self.symbols, *weights, *arena]

    def dims_declared(self) -> str:
        """Return the parameter list of a function that takes the dims alone."""
        return ", ".join(p.declared + p.name for p in self.symbols) or "void"

    def header(self) -> str:
        """Return the text of the C header: status codes, maximal sizes if they are known, and the three functions with their parameters."""
        i, u = self.interface, self.upper
        most = (
            [f"#define {u}_ARENA_BYTES {i.workspace_max} /* at the largest dims of the contract */"] if i.workspace_max is not None else []
        )
        if not self.inside:
            most.append(f"#define {u}_WEIGHTS_BYTES {len(self.weights_file())}")
        statuses = ", ".join(f"{u}_{name} = {code}" for name, code in _STATUS.items())
        remarks = "\n".join(f"     {_comment(p.remark)}" for p in self.parameters())
        declared = ",\n    ".join(p.declared + p.name for p in self.parameters())
        return f"""\
/* {self.prefix}: a program compiled by Pliant. Build {self.prefix}.c with any C99 compiler, without -ffast-math and, for GCC,
   with -ffp-contract=off: then results are the same bits everywhere. It needs no library and allocates nothing. */
#ifndef PLIANT_{u}_H
#define PLIANT_{u}_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* What functions answer. From {u}_CHECK on, a check of the program failed, which {self.prefix}_status_text tells. */
enum {{ {statuses}, {u}_CHECK = {_CHECK} }};

{"".join(line + chr(10) for line in most)}
/* Bytes of the arena for these dims ({_comment(workspace_text(i))}); where they are outside of the contract, the status, negated. */
int64_t {self.prefix}_arena_bytes({self.dims_declared()});

/* Runs the program.
{remarks}
   Tensors are contiguous, row-major, aligned to their elements. */
int32_t {self.prefix}(
    {declared});

/* A sentence about a status. */
const char *{self.prefix}_status_text(int32_t status);

#ifdef __cplusplus
}}
#endif

#endif
"""

    # The source.

    def source(self) -> str:
        """Return the text of the C source file."""
        entries = "\n\n".join([self._arena_function(), self._function(), self._status_function()])
        have = self.module.text
        more = [text for text in helpers_for([entries]) if text not in have]
        return "\n\n".join([f'#include "{self.prefix}.h"', have.rstrip(), *more, *self._constants(), entries, ""])

    def _constants(self) -> list[str]:
        """Return the definitions of the weights; as unions, so that they may be read as elements of any type."""
        if not self.inside:
            return []
        unions = []
        for n, a in enumerate(self.weights):
            words = a.reshape(-1).view(f"u{a.itemsize}") if a.itemsize in _WORDS else a.reshape(-1).view(np.uint8)
            numbers = [f"0x{v:x}" for v in words.tolist()] or ["0"]
            lines = "".join("  " + ", ".join(numbers[at : at + 16]) + ",\n" for at in range(0, len(numbers), 16))
            kinds = "int64_t i; double d; float f; int32_t i32; int16_t i16; uint32_t u32; uint16_t u16; uint64_t u64;"
            unions.append(f"static const union {{ {_WORDS[words.itemsize]} w[{len(numbers)}]; {kinds} }} constant_{n} = {{{{\n{lines}}}}};")
        return unions

    def _begin(self) -> list[str]:
        """Return the first lines of both functions: the context, and the array `dims` with the symbols filled in."""
        lines = [f"  int64_t dims[{self.layout.total}] = {{0}};", "  static const volatile int32_t never = 0;"]
        lines += ["  Ctx ctx = {0};", "  int32_t code;", "  ctx.cancel = &never;"]
        return lines + [f"  dims[{self.layout.b + n}] = {p.name};" for n, p in enumerate(self.symbols)]

    def _arena_function(self) -> str:
        lines = [f"int64_t {self.prefix}_arena_bytes({self.dims_declared()}) {{", *self._begin(), "  code = size(&ctx, NULL, dims);"]
        return "\n".join([*lines, f"  return code != 0 ? -(int64_t)pl_status(&ctx, code) : dims[{self.layout.d}];", "}"])

    def _function(self) -> str:
        interface = self.interface
        declared = ", ".join(p.declared + p.name for p in self.parameters())
        lines = [f"int32_t {self.prefix}({declared}) {{", *self._begin()]
        pointers = [p.name for p, x in zip(self.inputs, interface.inputs, strict=True) if x.kind == "tensor"]
        pointers += [self.outputs[n].name if o.alias is None else self.inputs[o.alias].name for n, o in enumerate(interface.outputs)]
        pointers += [f"constant_{n}.w" if self.inside else f"(const uint8_t *)weights + {at}" for n, at in enumerate(self.offsets())]
        lines += [f"  void *buffers[{max(1, len(pointers))}];"]
        lines += [f"  buffers[{n}] = (void *)(uintptr_t)({p});" for n, p in enumerate(pointers)]
        if not pointers:
            lines.append("  buffers[0] = NULL;")
        lines.append("  if ((code = shapes(&ctx, buffers, dims)) != 0) return pl_status(&ctx, code);")
        scalars = [(p, ALL[x.dtype]) for p, x in zip(self.inputs, interface.inputs, strict=True) if x.kind != "tensor"]
        for at, (p, d) in enumerate(scalars, self.layout.scalars):
            wide = converted(Val(p.name, c_type(d)), d, f64 if d.is_float else i64)
            value = f"(int64_t)pl_f64_bits({wide.text})" if d.is_float else wide.text
            lines.append(f"  dims[{at}] = {value};")
        lines += [
            "  if ((code = prepare(&ctx, buffers, dims)) != 0) return pl_status(&ctx, code);",
            "  if ((uintptr_t)arena % 8 != 0) return 4;",
            "  ctx.workspace = (uint8_t *)arena;",
            "  ctx.workspace_size = arena_bytes;",
            "  if ((code = run(&ctx, buffers, dims)) != 0) return pl_status(&ctx, code);",
        ]
        lines += [f"  *{p.name} = dims[{self.layout.e + n}];" for n, p in enumerate(self.counts)]
        return "\n".join([*lines, "  return 0;", "}"])

    def _status_function(self) -> str:
        texts = {0: "ok", 1: "cancelled", 3: "the arena is too small", 4: "the arena is not aligned to 8 bytes"}
        for n, check in enumerate(self.module.sites):
            texts[_CHECK + n] = check.message.replace(" = {0}", "").format(*map(str, check.values))
        cases = "".join(f"    case {code}: return {_string(text)};\n" for code, text in texts.items())
        head = f"const char *{self.prefix}_status_text(int32_t status) {{\n  switch (status) {{\n"
        return f'{head}{cases}    default: return "unknown";\n  }}\n}}'

    # The weights as a file.

    def offsets(self) -> list[int]:
        """Return the byte offset of each weight in the weights file."""
        ends = [0]
        for a in self.weights:
            ends.append(ends[-1] + a.nbytes + -a.nbytes % _ALIGNMENT)
        return ends[:-1]

    def weights_file(self) -> bytes:
        """Return the content of the weights file: little endian, each weight aligned."""
        parts = []
        for a in self.weights:
            data = a.astype(a.dtype.newbyteorder("<"), copy=False).tobytes()
            parts.append(data + bytes(-len(data) % _ALIGNMENT))
        return b"".join(parts)


def _comment(text: str) -> str:
    return text.replace("*/", "* /").encode("ascii", "replace").decode()


def _string(text: str) -> str:
    plain = text.encode("ascii", "replace").decode().replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ").replace("??", "?")
    return f'"{plain}"'
