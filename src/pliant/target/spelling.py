"""The parts of a target's name, and the interface of a kind of target.

A kind of target, or a CPU architecture, is a module of this package with three names, and a line in `KINDS` of `names.py`:

    ROWS: tuple[Row, ...]                         what users are shown of its names
    NAMES: tuple[str, ...]                        every name of it, without added features and systems
    named(spelled: Spelled) -> Target | None      the target of a name; None where the name is another kind's
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ..support.errors import UnsupportedError
from ..support.source import caller_span
from .machine import Cpu


class Row(NamedTuple):
    """A record about one form of target names: its syntax, examples, its meaning, and the files that `pliant.export` writes."""

    form: str
    examples: tuple[str, ...]
    means: str
    export: str


LIBRARY = "a shared library and an object, a C header"
CPU_FORM = "[llvm:]CPU"


class Spelled(NamedTuple):
    """A target name split into its parts: base, features, operating system."""

    name: str
    base: str
    features: tuple[str, ...]
    os: str  # "" if the name has none
    help: str  # the syntax of names, for errors

    @property
    def cpu(self) -> str:
        """The name of the CPU, without the prefix `llvm:`."""
        return self.base.removeprefix("llvm:")

    @property
    def system(self) -> str:
        """The operating system of the target; by default that of this machine."""
        return self.os or this_os()

    def refused(self, what: str, facts: Iterable[str] = (), help: str = "") -> UnsupportedError:
        """Returns the error for a target name that is not valid."""
        return UnsupportedError(what, where=caller_span(), facts=list(facts), help=help or self.help)

    def alone(self, features: bool = False) -> None:
        """Raises an error if the name has an operating system, or features unless they are allowed."""
        if self.os:
            raise self.refused(f"the target `{self.base.partition(':')[0]}` takes no operating system: `{self.name}`")
        if self.features and not features:
            raise self.refused(f"the target `{self.base.partition(':')[0]}` takes no features: `{self.name}`")

    def among(
        self, cpus: Mapping[str, Cpu], known: Collection[str], implies: Mapping[str, tuple[str, ...]]
    ) -> tuple[Cpu, frozenset[str]] | None:
        """Returns the CPU of this name and its features, those of the name and all that they imply included.

        None if `cpus` does not have it.
        """
        cpu = cpus.get(self.cpu)
        return None if cpu is None else (cpu, self.closed(known, implies).union(cpu.features))

    def closed(self, known: Collection[str], implies: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
        """Returns the features of the name and all that they imply; raises UnsupportedError for one that is not in `known`."""
        features: set[str] = set()
        pending = list(self.features)
        while pending:
            feature = pending.pop()
            if feature not in known:
                raise self.refused(
                    f"unknown feature `{feature}` in target `{self.name}`",
                    near(feature, sorted(known)),
                    "features are spelled as LLVM spells them: " + ", ".join(sorted(known)),
                )
            if feature not in features:
                features.add(feature)
                pending += implies.get(feature, ())
        return frozenset(features)


def this_os() -> str:
    """The operating system whose conventions code in this process must follow, as target names spell it."""
    if hasattr(sys, "getandroidapilevel"):
        return "android"
    return {"win32": "windows", "darwin": "macos"}.get(sys.platform, "linux")


def near(word: str, known: Iterable[str]) -> list[str]:
    """Returns the known words that are close to `word` as a list with one fact for an error; empty if none is."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=3, cutoff=0.5)
    return ["near: " + ", ".join(f"`{n}`" for n in close)] if close else []
