"""Settings of the compiler that come from the environment, read and checked in one place.

PLIANT_SHOW=fuse,host        print the program after these steps of the pipeline (`all`: after every one)
PLIANT_DISABLE=fuse,plan     leave out these optimisations, to see what each is worth

>>> read({"PLIANT_DISABLE": "fuse, plan"}).disable == frozenset({"fuse", "plan"})
True
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple


class Settings(NamedTuple):
    """What the environment asks of the compiler."""

    show: frozenset[str] = frozenset()
    disable: frozenset[str] = frozenset()

    def shows(self, step: str) -> bool:
        """Whether the program is printed after a step."""
        return step in self.show or "all" in self.show


def read(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of an environment."""
    return Settings(_names(environment.get("PLIANT_SHOW", "")), _names(environment.get("PLIANT_DISABLE", "")))


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())
