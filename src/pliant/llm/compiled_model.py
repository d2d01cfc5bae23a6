"""The compiled program of a model with packed weights: loaded from the program store (runtime/program_store.py), or compiled and stored.

    model = CompiledModel(open_gguf("model.gguf"), "f16")
    model.config.layers, model.run(threads=2)

With a stored program, the compiler is not even imported, and only the header of the model file is read. The key covers everything that
determines the program: the model's files (path, size, modification time), the dtype of the KV cache, the machine, the compiler's sources
and its settings. Stored programs of models that no longer exist are removed when another one is stored.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..frontends.gguf import GgufFile
from ..frontends.gguf.reader import stamp_of
from ..runtime import code_cache as disk
from ..runtime.executable import Executable
from ..runtime.program_store import ProgramStore, StoredProgram
from ..support.record import dataclass

if TYPE_CHECKING:
    from ..target import Target

_SETTLED = 2.0  # seconds: a file changed more recently may change again within the resolution of its modification time


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """The sizes of a decoder that the engine needs for its KV cache and checks."""

    layers: int
    kv_heads: int
    head_dim: int  # in the KV cache: a multiple of 16
    vocab_size: int
    context: int


class CompiledModel:
    """A model whose config is known at once and whose program is compiled only by `run`, if it is not stored."""

    def __init__(self, file: GgufFile, cache: str) -> None:
        from ..target import target

        self._file, self._cache, self._machine = file, cache, target("native")
        self._folder, self._key = model_programs(), _key(file, cache, self._machine)
        self._name = _name(file, cache, repr(self._machine))
        self._stored = self._folder.find(self._name, self._key) if self._folder is not None and self._key else None
        self._model: Any = None  # built at most once: a cold start needs its settings first, then its program
        config = None if self._stored is None else _config(self._stored)
        if config is None:
            s = self._built().settings
            self._stored, config = None, DecoderConfig(s.layers, s.kv_heads, s.cache_dim, s.vocab_size, s.context)
        self.config: DecoderConfig = config

    def run(self, threads: int | None = None) -> Executable:
        """Returns the executable program; compiles it if it is not in the store."""
        from ..provenance import Provenance

        stored = self._stored or self._compiled()
        return Executable(stored.package, threads=threads, constants=stored.constants, provenance=Provenance(self._program, self._machine))

    def _built(self) -> Any:
        """Returns the nn module of the model; builds it from its file, at the first call and again after `_compiled` has dropped it."""
        if self._model is None:
            import pliant

            from .models import build

            self._model = build(self._file, getattr(pliant, self._cache))
        return self._model

    def _program(self) -> Any:
        return self._built().to_program()

    def _compiled(self) -> StoredProgram:
        """Compiles the program and packs the weights; returns both, and stores them on disk in the background."""
        from ..pipeline import compile_program
        from ..runtime.loading import constants_of

        program = self._program()
        package = compile_program(program)
        constants = constants_of(package, program.constants)
        config = {name: getattr(self.config, name) for name in DecoderConfig.__dataclass_fields__}
        stored = StoredProgram(package, constants, {"config": config, "models": [stamp.path for stamp in self._file.stamps]})
        self._model = None  # frees memory: the program holds the weights, and a report can build the model again
        if self._folder is not None and self._key:  # stored in the background: only the next start needs it
            threading.Thread(target=_keep, args=(self._folder, self._name, self._key, self._file, stored), name="pliant-keep").start()
        return stored


def model_programs() -> ProgramStore | None:
    """Returns the store of programs with their weights; None if there is no cache folder."""
    base = disk.folder()
    return None if base is None else ProgramStore(base / "ready")


def forget(path: Path) -> int:
    """Removes the stored programs of a model file; returns the number of bytes freed."""
    folder = model_programs()
    return 0 if folder is None else folder.remove(_place(os.path.realpath(path)))


def _config(stored: StoredProgram) -> DecoderConfig | None:
    """Returns the decoder config that was stored with a program; None if it is not a valid one."""
    values = stored.facts.get("config")
    if not isinstance(values, dict) or set(values) != set(DecoderConfig.__dataclass_fields__):
        return None
    return DecoderConfig(**values) if all(type(n) is int and 0 < n < 1 << 31 for n in values.values()) else None


def _keep(folder: ProgramStore, name: str, key: bytes, file: GgufFile, program: StoredProgram) -> None:
    """Stores a program, and removes those of deleted models.

    Does nothing if its model file has changed, or is so new that a change could go unnoticed.
    """
    for stamp in file.stamps:
        try:
            now = stamp_of(Path(stamp.path), os.stat(stamp.path))
        except OSError:
            return
        if now != stamp or time.time() - stamp.changed / 1e9 < _SETTLED:
            return
    folder.keep(name, key, program)
    folder.sweep(_is_gone)


def _is_gone(facts: Mapping[str, Any]) -> bool:
    """True if a file of the model no longer exists."""
    models = facts.get("models")
    return not isinstance(models, list) or not all(isinstance(path, str) and os.path.exists(path) for path in models)


def _name(file: GgufFile, cache: str, machine: str) -> str:
    place = _place(file.stamps[0].path) if file.stamps else ""
    return f"{place}-{cache}-{hashlib.sha256(machine.encode()).hexdigest()[:8]}"


def _place(path: str) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:24]


def _key(file: GgufFile, cache: str, machine: Target) -> bytes | None:
    """Returns everything that determines a program and its weights; None if the file is not on disk, or users registered patterns."""
    patterns = sys.modules.get("pliant.graph.patterns")  # not imported means that nothing is registered
    if not file.stamps or (patterns is not None and patterns.REGISTERED):
        return None
    from ..support.compiler_version import compiler_version
    from ..support.settings import read as read_settings
    from ..target.declared import declared_text

    parts = [compiler_version(), repr(machine), declared_text(machine), cache, *sorted(read_settings().disable), *map(repr, file.stamps)]
    return "\n".join(parts).encode()
