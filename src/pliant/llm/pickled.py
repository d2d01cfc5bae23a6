"""Pickles of models: an `Embedder` and an `LLM` as bytes in the form of a `.pliant` file, for other processes and other machines.

    Embedder    the sections of its executable's artifact, the text of its tokenizer, and its settings as JSON
    LLM         the bytes of its GGUF files with their stamps, and its options as JSON

All sections are compared with their checksums, and then validated as files of a user are: what is damaged raises ModelFileError. A
language model is compiled for the machine that loads it. There its own files are taken if they have the same path, size and time, so that
the processes of one machine find its program in the program store; else the bytes are, and nothing is written to disk.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..frontends.checkpoint import Checkpoint
from ..frontends.gguf import GgufFile, open_gguf
from ..frontends.gguf.reader import Stamp, from_parts, stamp_of
from ..runtime import container
from ..runtime.container import Container, Section, Sections, broken
from ..support.errors import Error, ModelFileError, UnsupportedError

if TYPE_CHECKING:
    from ..runtime.executable import Executable
    from .embedder import Embedder
    from .lm import LLM
    from .models.bert import Settings

_OPTIONS = {"name": str, "cache": str, "context": int | None, "threads": int | None}


def embedder_bytes(e: Embedder, run: Executable) -> bytes:
    """Returns the pickled bytes of an embedder; `run` is its executable."""
    from ..artifact import to_bytes

    def more(w: Sections) -> None:
        w.add("tokenizer", "", e.tokenizer_text.encode())
        w.add("embedder", "", json.dumps(asdict(e.settings)).encode(), threads=run.threads)

    return to_bytes(run, run._provenance, more)


def embedder_of(content: bytes) -> Embedder:
    """Returns the embedder of pickled bytes; raises ModelFileError if they are damaged or their parts do not fit together."""
    from ..artifact import executable_of
    from .embedder import Embedder

    file = container.parse(content, "this pickle of an embedder")
    described = _only(file, "embedder")
    settings = _settings(_json(file, described), file)
    try:
        text = bytes(_only(file, "tokenizer").data).decode()
    except UnicodeDecodeError:
        raise broken(file.file, "its tokenizer is not UTF-8") from None
    run = executable_of(file, _threads(described.facts.get("threads"), file))
    if [str(x) for x in run.outputs[0].shape[1:]] != [str(settings.width)] or len(run.inputs) != 2:
        raise broken(file.file, "its program and its settings do not fit together")
    made = Embedder.__new__(Embedder)
    made._start(settings, text, lambda: run, file.file)
    return made


def _settings(values: dict[str, Any], file: Container) -> Settings:
    """Returns the settings of an embedder; raises ModelFileError for other fields, types or ranges than the reader of a folder admits."""
    from .models.bert import Settings

    kinds = {"eps": float, "first": bool, "normalized": bool}
    names = Settings.__dataclass_fields__
    if set(values) != set(names) or any(type(values[name]) is not kinds.get(name, int) for name in names):
        raise broken(file.file, "its settings are not those of an embedder")
    if any(type(value) is int and not 1 <= value <= 1 << 22 for value in values.values()):
        raise broken(file.file, "its settings are out of range")
    return Settings(**values)


def language_model_bytes(lm: LLM) -> bytes:
    """Returns the pickled bytes of a language model of GGUF files; raises ModelFileError if these have changed or are gone.

    Raises UnsupportedError for a checkpoint folder.
    """
    if isinstance(lm.file, Checkpoint):
        raise UnsupportedError(
            f"the language model {lm.name} was opened from a checkpoint folder, and pickles hold GGUF files",
            help=f"pass the path, and open it in each process: pliant.LLM({lm.name!r})",
        )
    stamps = lm.file.stamps
    contents = [_unchanged(stamp) for stamp in stamps]

    def write(w: Sections) -> None:
        w.add("llm", "", json.dumps({"name": lm.name, **lm.options}).encode())
        for stamp, content in zip(stamps, contents, strict=True):
            w.add("gguf", os.path.basename(stamp.path), content, path=stamp.path, changed=stamp.changed)

    return container.to_bytes(write)


def _unchanged(stamp: Stamp) -> bytes:
    """Returns the bytes of a model's file; raises ModelFileError if it is not the one that was opened."""
    path = Path(stamp.path)
    try:
        content = path.read_bytes()
        now = stamp_of(path, path.stat())
    except OSError as problem:
        raise ModelFileError(f"`{path}` cannot be read: {problem.strerror}") from None
    if now != stamp or len(content) != stamp.size:
        raise ModelFileError(f"`{path}` has changed since the model was opened", help="open the model again, then pickle it")
    return content


def language_model_of(content: bytes) -> LLM:
    """Returns the language model of pickled bytes, compiled for this machine; raises ModelFileError if they are damaged."""
    from .lm import LLM

    file = container.parse(content, "this pickle of a language model")
    options = _json(file, _only(file, "llm"))
    if set(options) != set(_OPTIONS) or not all(isinstance(options[name], kind) for name, kind in _OPTIONS.items()):
        raise broken(file.file, "its options are not those of a language model")
    parts = file.find("gguf")
    made = LLM.__new__(LLM)
    try:
        made._start(_opened(parts), **options)
    except ModelFileError:
        raise
    except Error as problem:  # options that a user may give, but not a file
        raise broken(file.file, problem.what) from None
    return made


def _opened(parts: Sequence[Section]) -> GgufFile:
    """Returns the model of the pickled files: from the files themselves if they are on this machine, else from the bytes."""
    if parts and all(_is_here(part) for part in parts):
        return open_gguf(str(parts[0].facts["path"]))
    return from_parts([(Path(part.name), bytes(part.data)) for part in parts])


def _is_here(part: Section) -> bool:
    """True if the file of a part is on this machine, with the same size and time."""
    path = part.facts.get("path")
    if not isinstance(path, str):
        return False
    try:
        return stamp_of(Path(path), os.stat(path)) == Stamp(path, len(part.data), part.facts.get("changed", -1))
    except (OSError, ValueError):
        return False


def _only(file: Container, kind: str) -> Section:
    sections = file.find(kind)
    if len(sections) != 1:
        raise broken(file.file, f"it has {len(sections)} sections `{kind}`, one is expected")
    return sections[0]


def _json(file: Container, section: Section) -> dict[str, Any]:
    try:
        value = json.loads(bytes(section.data))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise broken(file.file, f"its section `{section.kind}` is not a JSON object")
    return value


def _threads(value: Any, file: Container) -> int | None:
    if value is not None and (type(value) is not int or not 1 <= value < 1 << 16):
        raise broken(file.file, "its number of threads is none")
    threads: int | None = value
    return threads
