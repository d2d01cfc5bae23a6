"""The parts of a target's name, and what all kinds of targets ask of them.

A kind of target, or an architecture of CPUs, is a module of this package with three names, and a line in `KINDS` of `names.py`:

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


class Row(NamedTuple):
    """One form of target names: how it is written, names of that form, what they stand for, and what `pliant.export` writes."""

    form: str
    examples: tuple[str, ...]
    means: str
    export: str


LIBRARY = "a shared library and an object, a C header"
CPU_FORM = "[llvm:]CPU"


class Spelled(NamedTuple):
    """A name cut into its parts."""

    name: str
    base: str
    features: tuple[str, ...]
    os: str  # "" where none is said
    help: str  # how names are written, for errors

    @property
    def cpu(self) -> str:
        """The CPU, where the name is that of one."""
        return self.base.removeprefix("llvm:")

    @property
    def system(self) -> str:
        """The operating system, this machine's where none is said."""
        return self.os or this_os()

    def refused(self, what: str, facts: Iterable[str] = (), help: str = "") -> UnsupportedError:
        """The error that the name has earned."""
        return UnsupportedError(what, where=caller_span(), facts=list(facts), help=help or self.help)

    def alone(self, features: bool = False) -> None:
        """Refuses a system, and features unless the kind has them."""
        if self.os:
            raise self.refused(f"the target `{self.base.partition(':')[0]}` takes no operating system: `{self.name}`")
        if self.features and not features:
            raise self.refused(f"the target `{self.base.partition(':')[0]}` takes no features: `{self.name}`")

    def closed(self, known: Collection[str], implies: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
        """The features and all that they bring along."""
        have: set[str] = set()
        open_ = list(self.features)
        while open_:
            feature = open_.pop()
            if feature not in known:
                raise self.refused(
                    f"unknown feature `{feature}` in target `{self.name}`",
                    near(feature, sorted(known)),
                    "features are spelled as LLVM spells them: " + ", ".join(sorted(known)),
                )
            if feature not in have:
                have.add(feature)
                open_ += implies.get(feature, ())
        return frozenset(have)


def this_os() -> str:
    """The operating system whose conventions code loaded into this process has to follow, as target names spell it."""
    if hasattr(sys, "getandroidapilevel"):
        return "android"
    return {"win32": "windows", "darwin": "macos"}.get(sys.platform, "linux")


def near(word: str, known: Iterable[str]) -> list[str]:
    """The known words that `word` may have meant, as a fact for an error."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=3, cutoff=0.5)
    return ["near: " + ", ".join(f"`{n}`" for n in close)] if close else []
