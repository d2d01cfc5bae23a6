"""Reads an ONNX model from a path, bytes or a ModelProto, and checks versions, sizes, nesting and functions.

    model = read_model("model.onnx")

No other file is opened here. Nodes are validated when they are imported (`check.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ...support.errors import Error, ModelFileError, UnsupportedError
from ...support.record import dataclass
from .external import Folder

MOST_NODES = 1 << 20  # a limit on the import time of hostile files
DEEPEST = 64  # the deepest nesting of graphs and functions: the importer recurses, and Python's stack is limited
DEFAULT = ("", "ai.onnx")  # the two names of the default domain


@dataclass(frozen=True, slots=True)
class Model:
    """An ONNX model as read: the protobuf message, the opset version of each domain, the functions, and the folder of external data."""

    proto: Any
    opsets: dict[str, int]
    functions: dict[tuple[str, str, str], Any]
    folder: Folder | None
    file: str


def read_model(source: Any) -> Model:
    """Reads an ONNX model from a path, from bytes or from a ModelProto, and checks its form; raises ModelFileError if that is wrong."""
    proto, folder, file = _message(source)
    if not proto.HasField("graph"):
        raise ModelFileError(f"onnx: {file} has no graph", facts=["it is no ONNX model, or it is cut off"])
    _check_texts(proto, file)
    opsets = read_opsets(proto.opset_import, file)
    functions: dict[tuple[str, str, str], Any] = {}
    for f in proto.functions:
        key = (domain_of(f.domain), f.name, f.overload)
        if key in functions:
            raise ModelFileError(f'onnx: the function "{f.name}" is defined twice')
        functions[key] = f
    for total, (depth, _) in enumerate(walk(proto)):
        if depth > DEEPEST:
            raise ModelFileError(f"onnx: graphs are nested deeper than {DEEPEST}")
        if total >= MOST_NODES:
            raise ModelFileError(f"onnx: the model has more than {MOST_NODES} nodes")
    return Model(proto, opsets, functions, folder, file)


def _message(source: Any) -> tuple[Any, Folder | None, str]:
    """Returns the ModelProto of a source, the folder of its external data (None without a path), and a name for messages.

    Raises an Error for another kind of source, ModelFileError if it cannot be read.
    """
    onnx = load_onnx()
    if isinstance(source, onnx.ModelProto):
        return source, None, "the model"
    if isinstance(source, bytes | bytearray | memoryview):
        return _parsed(bytes(source), "the model"), None, "the model"
    if not isinstance(source, str | os.PathLike):
        kind = type(source).__name__
        raise Error(f"from_onnx reads a path, bytes or a ModelProto, not an object of type `{kind}`")
    path = os.fspath(source)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as problem:
        raise ModelFileError(f"onnx: {path} cannot be read: {problem.strerror or problem}") from None
    return _parsed(data, path), Folder(os.path.dirname(os.path.realpath(path))), path


def _check_texts(proto: Any, file: str) -> None:
    """Raises if a string of the file is not UTF-8; the protobuf parser returns bytes for such a string."""
    todo = [proto]
    while todo:
        message = todo.pop()
        for field, value in message.ListFields():
            if field.type == field.TYPE_STRING:
                for text in (value,) if isinstance(value, str | bytes) else value:
                    if not isinstance(text, str):
                        raise ModelFileError(
                            f"onnx: {file} has a text that is not UTF-8", facts=[f"in {message.DESCRIPTOR.name}.{field.name}"]
                        )
            elif field.type == field.TYPE_MESSAGE:
                todo += [value] if hasattr(value, "ListFields") else list(value)


def load_onnx() -> Any:
    """Imports the package onnx, which has the file format and the operator schemas; raises with advice if it is missing."""
    try:
        import onnx
    except ImportError:
        from ...support.install_hint import install_hint

        raise Error("the package onnx is not installed", help=install_hint("onnx")) from None
    return onnx


def _parsed(data: bytes, file: str) -> Any:
    """Parses bytes as a ModelProto; raises if they are malformed."""
    from google.protobuf.message import DecodeError

    proto = load_onnx().ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, RecursionError, ValueError) as problem:
        raise ModelFileError(f"onnx: {file} is no ONNX model, or it is broken", facts=[str(problem)[:200]]) from None
    return proto


def read_opsets(entries: Any, file: str) -> dict[str, int]:
    """Returns the opset version of each domain.

    Raises ModelFileError for two versions of a domain, UnsupportedError if the installed onnx does not know that of the default one.
    """
    versions: dict[str, int] = {}
    for entry in entries:
        domain = domain_of(entry.domain)
        if versions.setdefault(domain, entry.version) != entry.version:
            raise ModelFileError(f'onnx: {file} imports two versions of the domain "{domain or "ai.onnx"}"')
    newest = load_onnx().defs.onnx_opset_version()
    version = versions.get("")
    if version is not None and not 1 <= version <= newest:
        help_ = "a newer package onnx may know it: pip install -U onnx" if version > newest else ""
        raise (UnsupportedError if version > newest else ModelFileError)(
            f"onnx: {file} is of opset {version}", facts=[f"the installed package onnx knows 1 to {newest}"], help=help_
        )
    return versions


def domain_of(name: str) -> str:
    """The canonical name of a domain: "" for the default one, which has two names."""
    return "" if name in DEFAULT else name


def walk(proto: Any) -> Iterator[tuple[int, Any]]:
    """Yields every node of the graph, of its subgraphs and of the functions, with its nesting depth."""
    todo = [(0, proto.graph.node), *((0, f.node) for f in proto.functions)]
    while todo:
        depth, nodes = todo.pop()
        for node in nodes:
            yield depth, node
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    todo.append((depth + 1, attribute.g.node))
                todo += [(depth + 1, g.node) for g in attribute.graphs]
