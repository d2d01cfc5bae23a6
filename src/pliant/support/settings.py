"""Settings from environment variables, read and checked in one place.

PLIANT_SHOW=fuse,host        print the program after these steps of the pipeline (`all`: after every one)
PLIANT_VERIFY=1              verify kernels after every pass over loops, too (other steps always are)
PLIANT_DISABLE=fuse,plan     leave out these optimizations, to see what each is worth
PLIANT_CPU=x86-64-v2         restrict the target `native` to the features of that CPU
PLIANT_VIDEO=dense           video streams compute all pixels of each map (`lists`: changed pixels however many; `auto`: what is faster)

>>> read({"PLIANT_DISABLE": "fuse, plan"}).disable == frozenset({"fuse", "plan"})
True
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple


class Settings(NamedTuple):
    """The settings of the compiler, from environment variables (`PLIANT_SHOW`, …)."""

    show: frozenset[str] = frozenset()
    disable: frozenset[str] = frozenset()
    cpu: str = ""
    verify: bool = False
    video: str = "auto"

    def shows(self, step: str) -> bool:
        """True if the program is printed after a step."""
        return step in self.show or "all" in self.show


def read(environment: Mapping[str, str] = os.environ) -> Settings:
    """Returns the settings that an environment's variables give."""
    show, disable = (_names(environment.get(name, "")) for name in ("PLIANT_SHOW", "PLIANT_DISABLE"))
    verify = environment.get("PLIANT_VERIFY", "").strip() not in ("", "0")
    video = environment.get("PLIANT_VIDEO", "").strip() or "auto"
    return Settings(show, disable, environment.get("PLIANT_CPU", "").strip(), verify, video)


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())
