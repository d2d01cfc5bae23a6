"""Facts about WebAssembly: the features of every current engine, and those that a target name may add."""

from __future__ import annotations

from collections.abc import Iterable

from .machine import Caches, Target
from .spelling import Row, Spelled

TRIPLE = "wasm32-unknown-unknown"

# Part of LLVM's `generic` CPU and of all engines since 2021. Bulk memory gives copies and fills without library calls.
BASE = ("bulk-memory", "bulk-memory-opt", "mutable-globals", "nontrapping-fptoint", "sign-ext")
FEATURES = frozenset((*BASE, "simd128", "relaxed-simd", "atomics", "tail-call", "wide-arithmetic"))
IMPLIES: dict[str, tuple[str, ...]] = {"relaxed-simd": ("simd128",)}


NAMES = ("wasm", "wasm+simd128", "wasm+relaxed-simd")
ROWS = (Row("wasm", NAMES, "WebAssembly with a 32-bit memory", "one module that imports nothing"),)


def named(spelled: Spelled) -> Target | None:
    """Returns the target for a name of the form `wasm+features`, or None if it is none.

    Raises UnsupportedError for a system in the name.
    """
    if spelled.base != "wasm":
        return None
    spelled.alone(features=True)
    return make(spelled.name, spelled.closed(FEATURES, IMPLIES))


def make(name: str, features: Iterable[str]) -> Target:
    """The wasm target with `features` added to the base; the CPU that will run it is unknown, so small caches are assumed."""
    have = {*BASE, *features}
    return Target(
        name=name,
        kind="wasm",
        triple=TRIPLE,
        cpu="generic",
        tune="generic",
        features=tuple(sorted(have)),
        pointer_bits=32,
        vector_bits=128,  # without simd128 LLVM scalarizes vectors, so one width serves both
        n_vector_registers=16,
        has_fma="relaxed-simd" in have,  # if the engine fuses; the module's function `fused` tells (codegen/fused_probe.py)
        has_f16=False,
        has_f16c=False,
        caches=Caches(32 << 10, 256 << 10, 4 << 20),
    )
