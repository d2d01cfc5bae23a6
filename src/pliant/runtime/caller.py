"""Calls of a compiled program: the native fast path, and the slow path in Python for every call that the fast path does not serve.

`Caller.open` returns the function that users call. It is native code (runtime/native/vectorcall.ll) if Python and numpy have the expected
binary interface, else the slow path itself. Both use the frames kept here and take the same steps: write the arguments into a frame;
`prepare` checks them and computes all sizes; allocate the outputs; `run` works without the GIL. Any number of threads may call at once.

    caller = Caller(package, None, ())
    f = caller.open()
    f(a, b, out=y)
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from ..support.errors import CallError, Error, InternalError, counted, is_are
from ..support.source import caller_span
from . import cpython_api, interrupt
from .arguments import address_of, is_torch
from .blob import load
from .call_frame import CallFrame
from .ctx import Entry, ShortEntry
from .failure import failure
from .interface import Interface, Output
from .marshal import Marshal
from .native_library import native
from .package import Package
from .records import CallDescriptor, Frame, Launch, Plan

_KEPT_SLOTS = 8  # call frames kept with their workspaces; calls that run beyond these allocate a frame each time
_RECORD = struct.Struct("=8q")  # Ctx.error


class Caller:
    """Calls one compiled program: holds its frames and checks. It keeps no reference to the function that `open` returns: no cycle."""

    def __init__(self, package: Package, threads: int | None, constants: Sequence[Any]) -> None:
        self.interface = interface = package.interface
        self.names = [i.name for i in interface.inputs]
        self.marshal = Marshal(interface)
        self.layout = self.marshal.layout
        self.slots: dict[int, CallFrame] = {}  # the kept call frames, by the address of their record
        self._passing: list[CallFrame] = []  # call frames of running calls that are not kept
        self.threads = threads
        self._loaded = load(package.blob)
        # These two return at once, so they keep the GIL: it is cheaper, and no other thread changes an array meanwhile.
        self.prepare = ShortEntry(self._loaded.address("prepare"))
        self.size = ShortEntry(self._loaded.address("size"))
        self._entry = Entry(self._loaded.address("run"))
        self._held = constants  # keeps them alive: the program has their addresses
        self._constants = _addresses(interface, constants)
        self._counted = any(c is not None for o in interface.outputs for c in o.counted_by)
        code, address, nothing = native(), ctypes.c_void_p, None
        self._take = ctypes.PYFUNCTYPE(address, address)(code.address("take_frame"))
        self._give = ctypes.PYFUNCTYPE(nothing, address, address)(code.address("give_frame"))
        self._release = ctypes.PYFUNCTYPE(nothing, address)(code.address("release"))
        self._frames = ctypes.c_void_p()  # the list of free frames

    def open(self) -> Callable[..., Any]:
        """Return the function that users call.

        Programs with sub-byte tensors, or with outputs whose size is counted while they run, have no fast path.
        """
        process = cpython_api.host()
        packed = any(plan.per_byte > 1 for plan in (*self.marshal.plans, *self.marshal.results))
        if process is None or packed or self._counted:
            return self._slow_path
        records = self.marshal.native_plans()
        plans = (Plan * max(1, len(records)))(*records)
        texts = [sys.intern(name) for name in self.names]
        names = (ctypes.c_int64 * max(1, len(texts)))(*map(id, texts))
        launch = Launch.FIXED if self.threads is not None else Launch.CHOSEN
        slow_path, failed = self._slow_path, self._failed
        descriptor = CallDescriptor(
            host=ctypes.addressof(process),
            inputs=len(self.names),
            outputs=len(self.interface.outputs),
            plans=ctypes.addressof(plans),
            names=ctypes.addressof(names),
            prepare=self._loaded.address("prepare"),
            run=self._loaded.address("run"),
            need=self.layout.d,
            launch=launch if self.interface.parallel else Launch.NONE,
            frames=ctypes.addressof(self._frames),
            slow_path=id(slow_path),
            failed=id(failed),
        )
        descriptor.held = plans, texts, names, slow_path, failed  # keeps them alive: the descriptor has their addresses
        return cpython_api.builtin(descriptor) or slow_path

    def new_slot(self) -> CallFrame:
        """Allocate a call frame, the memory of one call."""
        return CallFrame(self.layout, self._constants)

    def bind(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return positional and keyword arguments in the order of the signature.

        Raises a CallError for a missing, unknown or repeated one.
        """
        if len(args) > len(self.names):
            taken, given = counted(len(self.names), "argument"), f"{len(args)} {is_are(len(args))} given"
            raise self.wrong_call(f"`{self.interface.name}` takes {taken}, {given}", self._out_help())
        bound = dict(zip(self.names, args, strict=False))
        for name, value in named.items():
            if name not in self.names:
                self.wrong_name(name, known=False)
            if name in bound:
                raise self.wrong_call(f"argument `{name}` is given twice")
            bound[name] = value
        for name in self.names:
            if name not in bound:
                self.wrong_name(name, known=True)
        return tuple(bound[name] for name in self.names)

    def out_list(self, out: Any) -> Sequence[Any]:
        """Return the outputs that `out` gives (one array, a tuple, or a dict by name) in order, None for those that it does not give.

        Raises a CallError for an unknown name, and for another number of outputs.
        """
        names = [o.name for o in self.interface.outputs]
        if isinstance(out, Mapping):
            for name in out:
                if name not in names:
                    self._no_such("output", name, names)
            return [out.get(name) for name in names]
        outputs = list(out) if isinstance(out, tuple | list) else [out]
        if len(outputs) != len(names):
            raise self.wrong_call(f"`{self.interface.name}` has {counted(len(names), 'output')}, `out` gives {len(outputs)}")
        return outputs

    def failure(self, record: bytes) -> BaseException:
        """Return the exception that an error record of compiled code stands for."""
        code, site, *values = _RECORD.unpack(record)
        return failure(self.interface, code, site, values)

    def _refusal(self, record: bytes, args: Sequence[Any]) -> BaseException:
        """Return the exception for arguments that `prepare` refused; its help is in the words of the library that their arrays are of."""
        problem = self.failure(record)
        if isinstance(problem, Error):
            for name in (name for name, value in zip(self.names, args, strict=True) if is_torch(value)):
                problem.help = problem.help.replace(f"np.ascontiguousarray({name})", f"{name}.contiguous()")
        return problem

    def _slow_path(self, /, *args: Any, out: Any = None, **named: Any) -> Any:
        """Run the program; `out` gives the memory of the results (one array, a tuple of them, or a dict by name).

        Returns the result, or a tuple if there are several.
        """
        if named or len(args) != len(self.names):
            args = self.bind(args, named)
        results = self._call(args, None if out is None else self.out_list(out))
        return results[0] if len(results) == 1 else tuple(results)

    def call_profiled(
        self, args: Sequence[Any], hook: int, out: Sequence[Any] | None = None, watch_loops: Callable[[int], int] | None = None
    ) -> list[Any]:
        """Run the program with a profile hook: the address of a `Profile` function, called at the begin and end of each kernel.

        `watch_loops` gets the address of `parallel_for` and returns the address of the one that this run calls. Returns the list of
        results, in the memory of `out` where that gives some.
        """
        return self._call(args, out, hook, watch_loops)

    def _call(
        self,
        args: Sequence[Any],
        out: Sequence[Any] | None,
        hook: int | None = None,
        watch_loops: Callable[[int], int] | None = None,
    ) -> list[Any]:
        slot = self._take_slot()
        slot.ctx.profile = hook
        try:
            taken = self.marshal.write(slot, args, out)
            if self.prepare(*slot.addresses):
                raise self._refusal(slot.take_error(), args)
            outputs = self.marshal.place(slot, taken)
            results = self._make_outputs(slot, args, outputs, taken.torch)
            if self.interface.parallel:
                slot.use_threads(self.threads)
            if watch_loops is None:
                self._run(slot)
            else:
                with slot.watched_loops(watch_loops):
                    self._run(slot)
            return [self._cut(slot, o, r) for o, r in zip(self.interface.outputs, results, strict=True)] if self._counted else results
        finally:
            slot.ctx.profile = None
            self._release(slot.address)
            if slot.address in self.slots:
                self._give(ctypes.addressof(self._frames), slot.address)
            else:
                self._passing.remove(slot)

    def _take_slot(self) -> CallFrame:
        """Return a free call frame, or a new one, which is kept unless `_KEPT_SLOTS` are."""
        address = self._take(ctypes.addressof(self._frames))
        if address is not None:
            return self.slots[address]
        slot = self.new_slot()
        if len(self.slots) < _KEPT_SLOTS:
            self.slots[slot.address] = slot
        else:
            self._passing.append(slot)
        return slot

    def cancel(self) -> int:
        """Stop the running calls: they raise CancelledError in their threads. Returns their number.

        Frames are taken and given back under the GIL, which we hold, so the list of free ones does not change meanwhile.
        """
        free, address = set(), self._frames.value
        while address:
            free.add(address)
            address = Frame.from_address(address).next
        running = [*(slot for place, slot in self.slots.items() if place not in free), *self._passing]
        for slot in running:
            if slot.ctx.cancel == slot.flag:
                slot.frame.flag = 1
            else:
                interrupt.cancel_main()
        return len(running)

    def _make_outputs(self, slot: CallFrame, args: Sequence[Any], given: Sequence[Any], torch: bool) -> list[Any]:
        """Return the outputs (updated state, given ones, new ones), and grow the workspace if needed.

        New ones are torch tensors if `torch`.
        """
        layout, marshal = self.layout, self.marshal
        sizes = layout.read_cd.unpack_from(slot.dims, layout.c * 8)
        if sizes[-1] > slot.frame.room:
            slot.reserve(sizes[-1])
        results: list[Any] = []
        at = 0
        for index, plan in enumerate(marshal.results):
            alias, result = marshal.aliases[index], given[index]
            if alias is not None:
                result = args[marshal.tensors[alias]]
            elif result is None:
                result, slot.buffers[layout.inputs + index] = plan.make(sizes[at : at + plan.rank], torch)
            results.append(result)
            at += plan.rank
        return results

    def _run(self, slot: CallFrame) -> None:
        slot.frame.flag = 0
        slot.ctx.cancel = interrupt.cancel_flag() or slot.flag
        if self._entry(*slot.addresses):
            self._failed(slot.take_error())

    def _failed(self, record: bytes) -> NoReturn:
        """Raise the error of a failed run: KeyboardInterrupt after Ctrl-C, else the exception for the error record."""
        interrupt.surface()
        raise self.failure(record)

    def _cut(self, slot: CallFrame, output: Output, result: Any) -> Any:
        """Trim an output to the size that the program counted while it ran; it was allocated with its capacity.

        Others are returned as they are.
        """
        counts = slot.dims[self.layout.e : self.layout.total]
        if not any(c is not None for c in output.counted_by):
            return result
        shape = [n if c is None else counts[c] for n, c in zip(result.shape, output.counted_by, strict=True)]
        return result.reshape(-1)[: math.prod(shape)].reshape(shape)

    def wrong_call(self, what: str, help: str = "") -> CallError:
        """Return the error for a call that does not fit the signature."""
        signature = ", ".join(str(i) for i in self.interface.inputs)
        facts = [f"the signature is {self.interface.name}({signature})"]
        return CallError(what, where=caller_span(), note="in this call", facts=facts, help=help)

    def wrong_name(self, name: str, known: bool) -> NoReturn:
        """Raise the error for a missing argument (`known`) or for an unknown name."""
        if known:
            raise self.wrong_call(f"argument `{name}` is missing")
        if any(o.name == name for o in self.interface.outputs):
            raise self.wrong_call(f"`{name}` is an output, no argument", self._out_help())
        self._no_such("argument", name, self.names)

    def _out_help(self) -> str:
        """Return the help that says how memory for outputs is passed: "`c` is an output: pass out=c"."""
        outputs = self.interface.outputs
        names = [o.name for o in outputs if o.alias is None]
        if len(names) != 1 or len(outputs) != 1:
            return f"outputs are given as out=({', '.join(o.name for o in outputs)})" if names else ""
        return f"`{names[0]}` is an output: pass out={names[0]}"

    def _no_such(self, what: str, name: str, names: list[str]) -> NoReturn:
        from difflib import get_close_matches

        near = get_close_matches(name, names, 1)
        hint = f"did you mean `{near[0]}`?" if near else f"{what}s are: {', '.join(names)}"
        raise self.wrong_call(f"`{self.interface.name}` has no {what} `{name}`", hint)


def _addresses(interface: Interface, constants: Sequence[Any]) -> list[int]:
    """Return the addresses of the constants; raises an error if their sizes are not those the program was compiled for."""
    sizes = [(c.nbytes, c.flags.c_contiguous) for c in constants]
    if sizes != [(c.size, True) for c in interface.constants]:
        raise InternalError(f"the constants of `{interface.name}` are not those it was compiled with")
    return [address_of(c) for c in constants]
