"""The target `web`: a page for browsers. Its code is WebAssembly with 128-bit vectors, which every current browser has."""

from __future__ import annotations

from dataclasses import replace

from . import wasm
from .machine import Target
from .spelling import Row, Spelled

NAMES = ("web",)
ROWS = (Row("web", NAMES, "a page for browsers that runs the model as WebAssembly with simd128", "a module, pliant.js and a page"),)


def named(spelled: Spelled) -> Target | None:
    """Returns the target for the name `web`, or None for another one. It takes no features: only the page knows what a browser has."""
    if spelled.base != "web":
        return None
    spelled.alone()
    return replace(wasm.make("web", ("simd128",)), kind="web")
