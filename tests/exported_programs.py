"""Exported programs run without Pliant's runtime, by nothing but their files: in wasmtime, and on a foreign CPU in qemu-user.

files = pliant.export(f, "riscv64@linux", folder)
(y,) = Exported(folder, "f").run({"x": x})            # state arguments are updated in place

What stands here is what a host in another language would do: read the description, place arguments and constants in memory, call
`prepare`, then `run`.
"""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from native_loops import slot
from pliant.dtype import ALL

Array = np.ndarray[Any, Any]
CTX = {8: (0, 8, 24, 40, 56), 4: (0, 8, 20, 28, 40)}  # workspace, its size, parallel_for, cancel, error, by the width of pointers


class Machine(Protocol):
    """Memory and a way to call functions in it."""

    def begin(self) -> None: ...

    def put(self, content: bytes) -> int: ...

    def serial_for(self) -> int: ...

    def call(self, entry: str, ctx: int, buffers: int, dims: int) -> int: ...

    def fetch(self, place: int, size: int) -> bytes: ...


class Exported:
    """An exported program and the machine that runs it."""

    def __init__(self, folder: Path, name: str, cpu: str = "") -> None:
        self.facts = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        file = self.facts["constants_file"]
        self.constants = (folder / file).read_bytes() if file else b""
        self.machine: Machine
        if self.facts["target"]["arch"] == "wasm32":
            self.machine = Wasm((folder / f"{name}.wasm").read_bytes())
        else:
            code, symbols = text_of((folder / f"{name}.o").read_bytes())
            entries = {entry: symbols[symbol] for entry, symbol in self.facts["entries"].items()}
            self.machine = Qemu(self.facts["target"]["arch"], code, entries, cpu)

    def run(self, arguments: Mapping[str, Any]) -> list[Array]:
        """The results; state is updated in place."""
        facts, m = self.facts, self.machine
        width = facts["pointer_bytes"]
        m.begin()
        tensors = [a for a in facts["arguments"] if a["kind"] == "tensor"]
        arrays = {a["name"]: np.ascontiguousarray(arguments[a["name"]]) for a in tensors}
        places = [m.put(arrays[a["name"]].tobytes()) for a in tensors]
        words = [0] * facts["dims"]["total"]
        for a in facts["arguments"]:
            if a["kind"] == "tensor":
                array = arrays[a["name"]]
                region = [*array.shape, *(step // array.itemsize for step in array.strides)]
                words[a["dims"] : a["dims"] + len(region)] = region
            else:
                words[a["dims"]] = slot(arguments[a["name"]], ALL[a["dtype"]])
        dims = m.put(struct.pack(f"<{len(words)}q", *words))
        assert m.call("prepare", m.put(self.context(0)), 0, dims) == 0
        words = list(struct.unpack(f"<{len(words)}q", m.fetch(dims, 8 * len(words))))
        results, at = [], facts["dims"]["outputs"]
        for o in facts["outputs"]:
            shape = tuple(words[at : at + len(o["shape"])])
            at += len(shape)
            if o["alias"] is None:
                array = np.zeros(shape, ALL[o["dtype"]].numpy())
                results.append((array, m.put(bytes(array.nbytes))))
            else:
                source = facts["arguments"][o["alias"]]
                results.append((arguments[source["name"]], places[source["buffer"]]))
        base = m.put(self.constants)
        pointers = [*places, *(place for _, place in results), *(base + c["offset"] for c in facts["constants"])]
        buffers = m.put(struct.pack(f"<{len(pointers)}{'Q' if width == 8 else 'I'}", *pointers))
        dims = m.put(struct.pack(f"<{len(words)}q", *words))
        assert m.call("run", m.put(self.context(words[facts["dims"]["workspace"]])), buffers, dims) == 0
        for array, place in results:
            if array.nbytes:
                array[...] = np.frombuffer(m.fetch(place, array.nbytes), array.dtype).reshape(array.shape)
        return [array for array, _ in results]

    def context(self, room: int) -> bytes:
        """A `Ctx` with a workspace of so many bytes."""
        width = self.facts["pointer_bytes"]
        workspace, size, parallel_for, cancel, error = CTX[width]
        record, pointer = bytearray(error + 64), "<Q" if width == 8 else "<I"
        struct.pack_into(pointer, record, workspace, self.machine.put(bytes(room)))
        struct.pack_into("<q", record, size, room)
        struct.pack_into(pointer, record, parallel_for, self.machine.serial_for())
        struct.pack_into(pointer, record, cancel, self.machine.put(bytes(4)))
        return bytes(record)


class Wasm:
    """A module in wasmtime; its own `serial_for` is put into its table."""

    def __init__(self, code: bytes) -> None:
        wasmtime = pytest.importorskip("wasmtime", reason="runs modules in wasmtime")
        settings = wasmtime.Config()
        settings.wasm_relaxed_simd_deterministic = True  # relaxed multiply-add is fused, whatever the machine has
        engine = wasmtime.Engine(settings)
        self.store = wasmtime.Store(engine)
        module = wasmtime.Module(engine, code)
        assert not module.imports
        self.exports = wasmtime.Instance(self.store, module, []).exports(self.store)
        self.memory = self.exports["memory"]
        self.launcher = int(self.exports["table"].grow(self.store, 1, self.exports["serial_for"]))

    def begin(self) -> None:
        self.top = int(self.exports["__heap_base"].value(self.store))

    def put(self, content: bytes) -> int:
        place = self.top
        self.top += len(content) + -len(content) % 64
        missing = self.top + 64 - self.memory.data_len(self.store)
        if missing > 0:
            self.memory.grow(self.store, -(-missing // 65536))
        self.memory.write(self.store, content, place)
        return place

    def serial_for(self) -> int:
        return self.launcher

    def call(self, entry: str, ctx: int, buffers: int, dims: int) -> int:
        return int(self.exports[entry](self.store, ctx, buffers, dims))

    def fetch(self, place: int, size: int) -> bytes:
        return bytes(self.memory.read(self.store, place, place + size)) if size else b""


_CODE, _DATA = 0x10000, 0x10000000  # addresses of the two segments of the static program
_ROOM = 0x10000  # for the start code, before the functions


class Qemu:
    """Machine code in qemu-user, without a linker: each call is a static program that holds the code and all memory.

    The start code calls functions, writes the whole memory to standard output, and exits with the functions' answers.
    """

    def __init__(self, arch: str, code: bytes, entries: Mapping[str, int], cpu: str = "") -> None:
        self.arch, self.code, self.entries = arch, code, entries
        self.command = [_qemu(arch), *(["-cpu", cpu] if cpu else [])]
        self.begin()

    def begin(self) -> None:
        self.memory = bytearray()

    def put(self, content: bytes) -> int:
        place = _DATA + len(self.memory)
        self.memory += content + bytes(-len(content) % 64)
        return place

    def serial_for(self) -> int:
        return self._address("serial_for")

    def call(self, entry: str, ctx: int, buffers: int, dims: int) -> int:
        return self.call_all([(entry, ctx, buffers, dims)])

    def call_all(self, calls: Sequence[tuple[str, int, int, int]]) -> int:
        """Call functions one after the other; 0 if all answer so."""
        start = _START[self.arch]([(self._address(entry), arguments) for entry, *arguments in calls], _DATA, len(self.memory))
        assert len(start) <= _ROOM
        program = static_elf(self.arch, start.ljust(_ROOM, b"\0") + self.code, bytes(self.memory))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "program"
            file.write_bytes(program)
            file.chmod(0o755)
            with (Path(folder) / "memory").open("wb") as out:  # one write to a file is whole
                done = subprocess.run([*self.command, str(file)], stdout=out, timeout=300, check=False)
            content = (Path(folder) / "memory").read_bytes()
        assert len(content) == len(self.memory), f"it ended with {done.returncode}"
        self.memory[:] = content
        return done.returncode

    def fetch(self, place: int, size: int) -> bytes:
        return bytes(self.memory[place - _DATA : place - _DATA + size])

    def _address(self, entry: str) -> int:
        return _CODE + _ROOM + self.entries[entry]


def _qemu(arch: str) -> str:
    for name in (f"qemu-{arch}", f"qemu-{arch}-static"):
        if found := shutil.which(name):
            return found
    pytest.skip(f"runs programs of {arch} in qemu-user, which is not installed")


def text_of(content: bytes) -> tuple[bytes, dict[str, int]]:
    """The code of an object, and where its global functions begin; what needs a linker is not there."""
    (table,) = struct.unpack_from("<Q", content, 40)
    count, names_at = struct.unpack_from("<HH", content, 60)
    heads = list(struct.iter_unpack("<IIQQQQIIQQ", content[table : table + 64 * count]))
    names = content[heads[names_at][4] :]
    assert not [h for h in heads if h[1] in (4, 9)], "it has relocations"
    sections = {names[h[0] : names.index(0, h[0])].decode(): content[h[4] : h[4] + h[5]] for h in heads}
    strings, symbols = sections[".strtab"], {}
    for name, _, _, section, value, _ in struct.iter_unpack("<IBBHQQ", sections[".symtab"][24:]):
        assert section, "it has undefined symbols"
        symbols[strings[name : strings.index(0, name)].decode()] = value
    return sections[".text"], symbols


def static_elf(arch: str, code: bytes, memory: bytes) -> bytes:
    """A static program: code at one address, memory at another, which begins with the first instruction."""
    machine, flags = {"aarch64": (183, 0), "riscv64": (243, 5)}[arch]
    code_at = 4096
    memory_at = code_at + len(code) + -(code_at + len(code)) % 4096
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HHIQQQI6H", 2, machine, 1, _CODE, 64, 0, flags, 64, 56, 2, 64, 0, 0)
    head += struct.pack("<IIQQQQQQ", 1, 5, code_at, _CODE, _CODE, len(code), len(code), 4096)
    head += struct.pack("<IIQQQQQQ", 1, 6, memory_at, _DATA, _DATA, len(memory), len(memory), 4096)
    return head.ljust(code_at, b"\0") + code.ljust(memory_at - code_at, b"\0") + memory


Calls = list[tuple[int, list[int]]]  # addresses of functions, and their arguments


def _start_aarch64(calls: Calls, memory: int, size: int) -> bytes:
    def load(register: int, value: int) -> list[int]:  # movz, movk
        return [0xD2800000 | (value & 0xFFFF) << 5 | register, 0xF2A00000 | (value >> 16 & 0xFFFF) << 5 | register]

    words = [0xAA1F03F3]  # mov x19, xzr
    for entry, arguments in calls:
        words += [w for n, value in enumerate(arguments) for w in load(n, value)] + load(16, entry)
        words += [0xD63F0200, 0xAA000273]  # blr x16; orr x19, x19, x0
    words += [*load(0, 1), *load(1, memory), *load(2, size), *load(8, 64), 0xD4000001]  # write(1, memory, size)
    words += [0xAA1303E0, *load(8, 93), 0xD4000001]  # mov x0, x19; exit
    return struct.pack(f"<{len(words)}I", *words)


def _start_riscv64(calls: Calls, memory: int, size: int) -> bytes:
    def load(register: int, value: int) -> list[int]:  # lui, addiw
        high = (value + 0x800) >> 12
        return [0x37 | register << 7 | (high & 0xFFFFF) << 12, 0x1B | register << 7 | register << 15 | (value & 0xFFF) << 20]

    words = [0x13 | 9 << 7]  # mv s1, zero
    for entry, arguments in calls:
        words += [w for n, value in enumerate(arguments) for w in load(10 + n, value)] + load(5, entry)
        words += [0x67 | 1 << 7 | 5 << 15, 0x33 | 9 << 7 | 6 << 12 | 9 << 15 | 10 << 20]  # jalr ra, t0; or s1, s1, a0
    words += [*load(10, 1), *load(11, memory), *load(12, size), *load(17, 64), 0x73]  # write(1, memory, size)
    words += [0x13 | 10 << 7 | 9 << 15, *load(17, 93), 0x73]  # mv a0, s1; exit
    return struct.pack(f"<{len(words)}I", *words)


_START = {"aarch64": _start_aarch64, "riscv64": _start_riscv64}
