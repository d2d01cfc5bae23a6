"""Export files for every embedder: `NAME.json`, the description of a program, and `NAME.bin`, its constants (docs/targets.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..runtime.call_frame import Layout
from ..runtime.interface import Interface
from ..runtime.package import ENTRIES
from ..target import Target

Array = np.ndarray[Any, Any]
_ALIGNMENT = 64  # of each constant, as in compiled programs


def constant_places(constants: Sequence[Array]) -> list[dict[str, int]]:
    """Return the offset of each constant in the exported `.bin` file, and its size in bytes."""
    places, end = [], 0
    for array in constants:
        places.append({"offset": end, "size": int(array.nbytes)})
        end += array.nbytes + -array.nbytes % _ALIGNMENT
    return places


def data_files(
    name: str, machine: Target, interface: Interface, constants: Sequence[Array], entries: Mapping[str, str]
) -> dict[str, bytes]:
    """Return the description and the constants (name -> content); `entries` maps the entry functions to their symbols."""
    content = b"".join(part for a in constants for part in (a.tobytes(), bytes(-a.nbytes % _ALIGNMENT)))
    layout = Layout(interface)
    record = json.loads(interface._replace(rules=(), kernels=(), constants=()).to_json())
    dims = {"symbols": layout.b, "outputs": layout.c, "workspace": layout.d, "counts": layout.e, "total": layout.total}
    described = {
        "format": "pliant-export",
        "version": 1,
        "name": name,
        "target": {"name": machine.name, "arch": machine.arch, "os": machine.os, "features": list(machine.features)},
        "pointer_bytes": machine.pointer_bits // 8,
        "entries": {entry: entries[entry] for entry in (*ENTRIES, *(e for e in entries if e not in ENTRIES))},
        "arguments": _arguments(interface),
        "outputs": record["outputs"],
        "symbols": record["symbols"],
        "counts": record["counts"],
        "checks": record["sites"],
        "dims": dims,
        "buffers": layout.buffers,
        "workspace": {"bytes": interface.workspace, "max": interface.workspace_max},
        "constants": constant_places(constants),
        "constants_bytes": len(content),
        "constants_file": f"{name}.bin" if constants else None,
    }
    files = {f"{name}.json": (json.dumps(described, indent=1) + "\n").encode()}
    return {**files, f"{name}.bin": content} if constants else files


def _arguments(interface: Interface) -> list[dict[str, Any]]:
    """Return the arguments, each with its index in `dims` (a tensor's shape, then its strides) and in `buffers`."""
    layout = Layout(interface)
    at, buffer, scalar = 0, 0, layout.scalars
    arguments: list[dict[str, Any]] = []
    for i in interface.inputs:
        record: dict[str, Any] = {"name": i.name, "kind": i.kind, "dtype": i.dtype}
        if i.kind == "tensor":
            placed = {"shape": list(i.shape), "strides": list(i.strides), "state": i.consumed, "buffer": buffer, "dims": at}
            arguments.append(record | placed)
            at, buffer = at + 2 * len(i.shape), buffer + 1
        else:
            arguments.append(record | {"dims": scalar})
            scalar += 1
    return arguments
