"""The target `web`: a page for browsers. Its code is WebAssembly with 128-bit vectors and atomics, which every current browser has.

A page holds a second module (`fused`), for engines whose relaxed multiply-add rounds once. Only the page can ask for that.
"""

from __future__ import annotations

from dataclasses import replace

from . import wasm
from .machine import Target
from .spelling import Row, Spelled

NAMES = ("web",)
ROWS = (
    Row(
        "web",
        NAMES,
        "a page for browsers that runs the model as WebAssembly with simd128 and relaxed-simd",
        "modules, pliant.js and a page",
    ),
)


def named(spelled: Spelled) -> Target | None:
    """Returns the target for the name `web`, or None for another name.

    Raises an error if the name has features or an operating system: only the page knows what a browser has.
    """
    if spelled.base != "web":
        return None
    spelled.alone()
    return _page("web", "simd128")


def fused() -> Target:
    """Returns the target of a page's second module: it needs an engine whose relaxed multiply-add is fused."""
    return _page("web, fused", "relaxed-simd", "simd128")


def _page(name: str, *features: str) -> Target:
    """Returns the wasm target of this name with atomics and these features, as one of kind `web`."""
    return replace(wasm.make(name, ("atomics", *features)), kind="web")
