"""Foreign calls from compiled code: to a Python function (`call_host`), or to a symbol of a shared library (`call_library`).

Compiled code loads the address of such a function from a buffer that it gets with its constants, so it has no undefined symbols. The
function has the signature of a kernel, `i32 f(Ctx *, void **buffers, int64_t *dims)`: buffers are the tensor arguments, then the
results; dims are their shapes, one after the other, then the scalar arguments (floats as the bits of the f64). It returns 0, or a
code that stops the program.

    array = entry(0, Outside("host", "my_function", "", 0, args, outs), [my_function])     # its address, as 8 bytes

An exception of a Python function stops the program, and the call of the program raises it: the error record carries its number.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtype import ALL
from ..support.errors import Error, ShapeError, counted, is_are
from .ctx import Code, Ctx, Entry

if TYPE_CHECKING:
    from .interface import Outside

Array = np.ndarray[Any, Any]
_RAISED: dict[int, BaseException] = {}  # exceptions on their way to the caller of the program
_NUMBERS = itertools.count(1)


class _EntryArray(np.ndarray[Any, Any]):
    """An array that holds the address of a function, and keeps the function alive."""

    held: Any


def entry(site: int, call: Outside, functions: Sequence[Callable[..., Any]]) -> Array:
    """Return the array from which compiled code loads the address of the function; `site` is the number of the call."""
    function = _python_entry(site, call, functions) if call.kind == "host" else _library_entry(call)
    array = np.array([ctypes.cast(function, ctypes.c_void_p).value], np.uint64).view(_EntryArray)
    array.held = function
    return array


def raised(number: int) -> BaseException | None:
    """Return the exception that stopped a program, once: it is not stored any longer. None if there is none of this number."""
    return _RAISED.pop(number, None)


def _library_entry(call: Outside) -> Any:
    try:
        library = ctypes.CDLL(call.library or None)
    except OSError as error:
        raise Error(f"call_library: the library `{call.library}` cannot be loaded", facts=[str(error)]) from None
    try:
        return library[call.name]
    except AttributeError:
        where = f"the library `{call.library}`" if call.library else "this process"
        help_ = 'name the library before the symbol: "libm.so.6:my_symbol"' if not call.library else ""
        raise Error(f"call_library: {where} has no symbol `{call.name}`", help=help_) from None


def _python_entry(site: int, call: Outside, functions: Sequence[Callable[..., Any]]) -> Any:
    if not 0 <= call.number < len(functions):
        raise Error(
            f"this program calls the Python function `{call.name}`, which does not come with it",
            help="compile it here from its source; a program that is loaded elsewhere cannot bring Python functions along",
        )
    function = functions[call.number]

    def enter(ctx: int, buffers: int, dims: int) -> int:
        try:
            _call(call, function, buffers, dims)
        except BaseException as error:  # the call of the program raises it, whatever it is
            return _stop(ctx, site, error)
        return 0

    return Entry(enter)


def _stop(ctx: int, site: int, error: BaseException) -> int:
    """Write the exception's number into the error record, unless there is an error already; returns the code that stops the program."""
    record = Ctx.from_address(ctx).error
    if record[0] == 0:
        number = next(_NUMBERS)
        _RAISED[number] = error
        record[0], record[1], record[2] = Code.OUTSIDE, site, number
    return Code.OUTSIDE


def _call(call: Outside, function: Callable[..., Any], buffers: int, dims: int) -> None:
    operands = (*call.args, *call.outs)
    tensors = [o for o in operands if o.rank >= 0]
    sizes = sum(o.rank for o in tensors)
    numbers = iter((ctypes.c_int64 * sizes).from_address(dims))
    slots = iter((ctypes.c_int64 * (len(operands) - len(tensors))).from_address(dims + 8 * sizes))
    pointers = iter((ctypes.c_void_p * len(tensors)).from_address(buffers))
    values = []
    for o in operands:
        dtype = ALL[o.dtype]
        if o.rank < 0:
            values.append(_scalar(dtype, next(slots)))
        else:
            values.append(_array(next(pointers), dtype, tuple(itertools.islice(numbers, o.rank))))
    args, outs = values[: len(call.args)], values[len(call.args) :]
    for a in args:
        if isinstance(a, np.ndarray):
            a.setflags(write=False)
    _write(call, function(*args), outs)


def _scalar(dtype: Any, slot: int) -> Any:
    value = struct.unpack("<d", struct.pack("<q", slot))[0] if dtype.is_float else slot
    return dtype.numpy().type(value)


def _array(address: int | None, dtype: Any, shape: tuple[int, ...]) -> Array:
    size = math.prod(shape) * dtype.itemsize
    memory = (ctypes.c_uint8 * size).from_address(address) if size and address else bytearray(size)
    array: Array = np.frombuffer(memory, np.uint8).view(dtype.numpy()).reshape(shape)
    return array


def _write(call: Outside, found: Any, outs: Sequence[Array]) -> None:
    """Copy the results of a Python function to the output buffers; raises an error if their shapes or types are not the declared ones."""
    results = list(found) if isinstance(found, tuple | list) else [found]
    if len(results) != len(outs):
        raise ShapeError(f"`{call.name}` returns {counted(len(results), 'value')}, {len(outs)} {is_are(len(outs))} expected")
    for k, (result, out) in enumerate(zip(results, outs, strict=True)):
        array = np.asarray(result)
        if array.shape != out.shape or array.dtype != out.dtype:
            raise ShapeError(
                f"result {k} of `{call.name}` is not what `out` says",
                facts=[f"it is {array.dtype} of shape {array.shape}", f"{out.dtype} of shape {out.shape} is expected"],
            )
        out[...] = array
