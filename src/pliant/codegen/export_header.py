"""The C header of an exported library: the ABI of docs/design/0001-abi.md, and the buffer and dim indices of one program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..runtime.call_frame import Layout
from ..runtime.interface import Interface
from ..target import Target

_CTX = """#ifndef PLIANT_CTX
#define PLIANT_CTX
typedef struct PliantCtx PliantCtx;
typedef int32_t (*PliantBody)(PliantCtx *, void *env, int64_t begin, int64_t end);
struct PliantCtx {
  uint8_t *workspace;                                /* 64-byte aligned, this call's own */
  int64_t workspace_size;                            /* bytes: what prepare wrote into dims */
  void *(*alloc)(PliantCtx *, int64_t bytes);        /* may be null where `counts` is empty */
  int32_t (*parallel_for)(PliantCtx *, PliantBody, void *env, int64_t extent, int64_t grain);
  void (*profile)(PliantCtx *, int64_t kernel, int64_t phase); /* may be null */
  int32_t *cancel;                                   /* never null; non-zero asks the program to stop */
  void *pool;                                        /* belongs to parallel_for */
  int64_t error[8];                                  /* code, check, six values; zero before a call */
};
#endif
"""


def header(name: str, machine: Target, interface: Interface, constants: Sequence[Mapping[str, int]]) -> str:
    """Return the C header of an exported program: the ABI, and the indices of its buffers and dims."""
    layout, upper = Layout(interface), name.upper()
    lines = [f"/* {_comment(interface.name)}, compiled by Pliant for {_comment(machine.name)}.", "", *_contract(interface), "*/"]
    lines += [f"#ifndef PLIANT_{upper}_H", f"#define PLIANT_{upper}_H", "", "#include <stdint.h>", "", "#ifdef __cplusplus", 'extern "C" {']
    lines += ["#endif", "", _CTX]
    lines += ["/* buffers: the arguments, the outputs, the constants */", "enum {"]
    tensors = [i.name for i in interface.inputs if i.kind == "tensor"]
    names = [f"{upper}_IN_{_word(n)}" for n in tensors] + [f"{upper}_OUT_{n}_{_word(o.name)}" for n, o in enumerate(interface.outputs)]
    lines += [f"  {n} = {at}," for at, n in enumerate(names)]
    lines += [f"  {upper}_CONSTANTS = {layout.constants},", f"  {upper}_BUFFERS = {layout.buffers}", "};", ""]
    lines += [
        "/* dims: shape and strides of each tensor argument, scalars, symbols, output shapes, workspace bytes, run-time counts */",
        "enum {",
    ]
    lines += [
        f"  {upper}_DIMS_SCALARS = {layout.scalars},",
        f"  {upper}_DIMS_SYMBOLS = {layout.b},",
        f"  {upper}_DIMS_OUTPUTS = {layout.c},",
    ]
    lines += [
        f"  {upper}_DIMS_WORKSPACE = {layout.d},",
        f"  {upper}_DIMS_COUNTS = {layout.e},",
        f"  {upper}_DIMS = {layout.total}",
        "};",
        "",
    ]
    if constants:
        offsets = ", ".join(str(c["offset"]) for c in constants)
        lines += [f"/* where each constant begins in {name}.bin; its memory is 64-byte aligned */"]
        lines += [f"static const int64_t {name}_constant_offsets[{len(constants)}] = {{{offsets}}};", ""]
    lines += ["/* prepare checks arguments and fills symbols, output shapes and workspace bytes; size does so from symbols; run runs */"]
    lines += [f"int32_t {name}_{entry}(PliantCtx *ctx, void **buffers, int64_t *dims);" for entry in ("prepare", "size", "run")]
    lines += ["/* a parallel_for without threads */"]
    lines += [f"int32_t {name}_serial_for(PliantCtx *ctx, PliantBody body, void *env, int64_t extent, int64_t grain);", ""]
    return "\n".join([*lines, "#ifdef __cplusplus", "}", "#endif", "#endif", ""])


def _contract(interface: Interface) -> list[str]:
    """Return the arguments, results and dims, as a contract prints them."""
    listed = [f"  {i}" for i in interface.inputs] + [f"  -> {o}" for o in interface.outputs] + [f"  {s}" for s in interface.symbols]
    return [_comment(line) for line in [*listed, f"  workspace: {interface.workspace} bytes"]]


def _comment(text: str) -> str:
    """Escape a text so that it cannot end the C comment around it."""
    return text.replace("*/", "* /").replace("\n", " ")


def _word(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", name).upper()
