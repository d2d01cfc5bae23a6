"""Collects the facts that `pliant doctor` shows; a fact that cannot be determined becomes a problem, never an exception."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar

from .. import __version__
from ..support.errors import Error
from ..support.record import dataclass
from . import progress

T = TypeVar("T")

TESTED = {("linux", "x86_64")}  # systems that the whole test suite runs on; exported code runs on others too
EXTRAS = {"onnx": "onnx", "torch": "torch"}  # extras of pyproject.toml that readers of model files need, and their package


@dataclass(slots=True)
class Facts:
    """The facts about an installation, ready for JSON, and its problems as pairs (problem, suggestion)."""

    found: dict[str, Any] = field(default_factory=dict)
    problems: list[tuple[str, str]] = field(default_factory=list)

    def attempt(self, find: Callable[[], T]) -> T | None:
        """Returns the result of `find`; records an Error as a problem and returns None."""
        try:
            return find()
        except Error as error:
            what = "; ".join([error.what, *error.facts])
            if (what, error.help) not in self.problems:
                self.problems.append((what, error.help))
            return None


def known_facts() -> Facts:
    """Returns all facts about the installation that need no measurement."""
    facts = Facts()
    facts.found = {
        "pliant": __version__,
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "executable": sys.executable,
        },
        "numpy": facts.attempt(_numpy),
        "llvmlite": facts.attempt(_llvmlite),
        "system": platform.platform(),
        "system_is_tested": (sys.platform, platform.machine()) in TESTED,
        "extras": _extras(),
        "cpu": _cpu_name(),
        "processors": os.cpu_count() or 1,
        "target": facts.attempt(_target),
        "threads": facts.attempt(_threads),
        "code_cache": _code_cache(facts),
        "measured": None,
    }
    return facts


def measured(facts: Facts) -> None:
    """Adds the measured rates of one thread and of all threads, if code can be compiled and run."""
    threads = facts.found["threads"]
    if facts.found["numpy"] is None or facts.found["target"] is None or threads is None:
        return
    facts.found["measured"] = facts.attempt(lambda: _rates(threads["count"]))
    progress("")


def _rates(count: int) -> dict[str, dict[str, float]]:
    counts = sorted({1, count})
    progress("measuring multiply-adds")
    try:
        from ..machine_peak import fma_rate, read_bandwidth

        flops = {str(n): fma_rate(n) for n in counts}
        progress("measuring reading of memory")
        return {"fma_flop_per_second": flops, "read_bytes_per_second": {str(n): read_bandwidth(n) for n in counts}}
    except (ImportError, OSError, MemoryError) as problem:
        raise Error(f"nothing could be measured: {problem or type(problem).__name__}") from None


def _extras() -> dict[str, dict[str, str | None]]:
    """Returns for each extra the version of its package; without the package, the command that installs it."""
    from importlib import metadata

    from ..support.install_hint import install_hint

    found: dict[str, dict[str, str | None]] = {}
    for extra, package in EXTRAS.items():
        try:
            found[extra] = {"version": metadata.version(package), "help": None}
        except metadata.PackageNotFoundError:
            found[extra] = {"version": None, "help": install_hint(extra)}
    return found


def _numpy() -> str:
    try:
        import numpy
    except (ImportError, OSError) as problem:
        raise _missing("numpy", problem, "arrays go in and out through it") from None
    return str(numpy.__version__)


def _llvmlite() -> dict[str, str]:
    try:
        import llvmlite
        import llvmlite.binding as binding
    except (ImportError, OSError, RuntimeError) as problem:
        raise _missing("llvmlite", problem, "without it only programs that are in the code cache run") from None
    return {"version": str(llvmlite.__version__), "llvm": ".".join(map(str, binding.llvm_version_info))}


def _missing(name: str, problem: Exception, why: str) -> Error:
    absent = isinstance(problem, ModuleNotFoundError) and (problem.name or "").partition(".")[0] == name
    what = f"{name} is not installed" if absent else f"{name} cannot be loaded: {problem}"
    return Error(what, facts=[why], help=f"{sys.executable} -m pip install {'' if absent else '--force-reinstall '}{name}")


def _cpu_name() -> str:
    from ..target.native import cpu_name

    return cpu_name()


def _target() -> dict[str, Any]:
    from ..target import target

    t = target("native")
    return {
        "arch": t.arch,
        "triple": t.triple,
        "cpu": t.cpu,
        "tune": t.tune,
        "features": list(t.features),
        "vector_bits": t.vector_bits,
        "vector_registers": t.n_vector_registers,
        "fma": t.has_fma,
        "f16": t.has_f16,
        "f16_conversion": t.has_f16c,
        "caches": {"l1": t.caches.l1, "l2": t.caches.l2, "l3": t.caches.l3, "line": t.caches.line},
    }


def _threads() -> dict[str, Any]:
    from ..runtime.threads import resolve_threads

    count, rule = resolve_threads()
    return {"count": count, "rule": rule}


def _code_cache(facts: Facts) -> dict[str, Any]:
    """Returns the facts about the code cache; adds a problem if it is not writable."""
    from ..runtime.code_cache import default

    cache = default()
    folder = cache.folder
    reason = "there is no home folder" if folder is None else not_writable(folder)
    if reason:
        facts.problems.append((f"compiled code is not kept for the next run: {reason}", "set PLIANT_CACHE to a folder that can be written"))
    return {
        "folder": None if folder is None else str(folder),
        "entries": len(cache.files()),
        "bytes": cache.size(),
        "limit_bytes": cache.limit,
        "writable": not reason,
    }


def not_writable(folder: Path) -> str:
    """Returns why files cannot be created in `folder` (which may not exist yet), or an empty text if they can; leaves no files behind."""
    import tempfile

    at = folder
    while not at.exists() and at != at.parent:
        at = at.parent
    if not at.is_dir():
        return f"{at} is not a folder"
    try:
        with tempfile.TemporaryFile(dir=at):
            return ""
    except OSError as problem:
        return f"{at}: {problem.strerror or problem}"
