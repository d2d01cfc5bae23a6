"""Converts Python arrays to the form that compiled code reads: an address, and a shape with strides in elements.

Arrays are never copied. `TensorPlan.take` accepts numpy arrays, torch tensors and objects with DLPack. For any other object it raises an
error that says what is wrong and how to convert it. It does not check dims, strides and contracts: compiled code (`prepare`) does.
Tensors of sub-byte elements are passed as bytes (u8) with a packed last dim, and are described in elements. 8-bit floats are
passed as ml_dtypes arrays or as bytes.

    plan = TensorPlan(Input("x", "tensor", "f32", ("n", "4")))
    taken = plan.take(x)          # taken.address, taken.region == (n, 4, 4, 1)
"""

from __future__ import annotations

import ctypes
import math
import operator
import struct
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..dtype import ALL, DType
from ..support.errors import Error, OutOfMemoryError, ShapeError, counted
from ..support.source import caller_span
from .cpython_api import arrays_are_as_expected
from .interface import Input
from .records import LARGE, PAGE, Array


class Taken(NamedTuple):
    """A tensor argument in the form that compiled code reads: address, shape and strides in elements, and the owner of its memory."""

    address: int
    region: tuple[int, ...]  # shape, then strides in elements
    owner: Any  # the object whose memory this is
    writable: bool
    itemsize: int
    per_byte: int = 1

    def extent(self) -> tuple[int, int]:
        """Return the half-open address range from the first to behind the last byte; an empty range if there are no elements."""
        shape, strides = self._items()
        if 0 in shape:
            return self.address, self.address
        steps = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
        low, high = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
        return self.address + low * self.itemsize, self.address + (high + 1) * self.itemsize

    def overlaps(self, other: Taken) -> bool:
        """True if the two share a byte. The test is exact: interleaved views without a common byte do not overlap."""
        (a, b), (c, d) = self.extent(), other.extent()
        if a >= d or c >= b:
            return False
        return bool(np.shares_memory(self._bytes(), other._bytes()))

    def overlaps_itself(self) -> bool:
        """True if two elements may have one address. They cannot if each dim's stride exceeds the reach of all smaller strides."""
        reach = 0
        shape, strides = self._items()
        for step, size in sorted((abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1):
            if step <= reach:
                return 0 not in shape
            reach += (size - 1) * step
        return False

    def _items(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return shape and strides in addressable items: elements, or bytes if several elements share one."""
        rank, per = len(self.region) // 2, self.per_byte
        shape, strides = self.region[:rank], self.region[rank:]
        if per == 1 or not rank:
            return shape, strides
        return (*shape[:-1], shape[-1] // per), (*(s // per for s in strides[:-1]), max(1, strides[-1] // per))

    def _bytes(self) -> np.ndarray[Any, Any]:
        """Return a numpy view of the memory with the same shape and strides, for `np.shares_memory`; it is never dereferenced."""
        shape, strides = self._items()
        interface = {
            "version": 3,
            "shape": shape,
            "strides": tuple(s * self.itemsize for s in strides),
            "typestr": f"|V{self.itemsize}",
            "data": (self.address, True),
        }
        return np.asarray(type("Memory", (), {"__array_interface__": interface})())


class TensorPlan:
    """The check and conversion of one tensor argument or output of a program, made once from its signature."""

    __slots__ = ("dtype", "input", "mask", "numpy", "per_byte", "rank", "what", "written")

    def __init__(self, given: Input, what: str = "argument") -> None:
        self.input = given
        self.what = f"{what} `{given.name}`"
        self.written = what == "output" or given.consumed
        self.rank = len(given.shape)
        self.dtype = ALL[given.dtype]
        self.numpy = numpy_dtype(self.dtype)
        self.per_byte = self.dtype.per_byte
        self.mask = self.dtype.itemsize - 1

    def take(self, value: Any) -> Taken:
        """Return a numpy array, a torch tensor or a DLPack object in the form that compiled code reads.

        Raises a `ShapeError` that names the argument for another type, dtype, rank or alignment.
        """
        if isinstance(value, np.ndarray):
            taken = self._take_numpy(value)
        elif is_torch(value):
            taken = self._take_torch(value)
        elif hasattr(value, "__dlpack__"):
            taken = self._take_dlpack(value)
        else:
            raise self.refuse(
                f"it is of type `{type(value).__name__}`, expected an array",
                help=self.way(f"np.asarray({self.input.name}, dtype={self._kind(self.numpy.name)})"),
            )
        if taken.address & self.mask:
            raise self.refuse(
                f"its data begins at an address that is no multiple of {self.dtype.itemsize} bytes",
                help=self.way(f"{self.input.name}.copy() has memory of its own, well aligned"),
            )
        return taken

    def region(self, given: Any) -> tuple[int, ...]:
        """Return shape and strides, in elements, of an array; a shape in place of an array means a contiguous one."""
        if hasattr(given, "shape"):
            return self.take(given).region
        shape = self.shape(given)
        return (*shape, *contiguous_strides(shape))

    def shape(self, given: Any) -> tuple[int, ...]:
        """Return a shape that is given in place of an array; raises a `ShapeError` that names the argument."""
        try:
            shape = tuple(operator.index(size) for size in given)
        except TypeError:
            help = f"for example ({', '.join(self.input.shape)}{',' * (self.rank == 1)})"
            raise self.refuse(f"{given!r} is no shape: a tuple of whole numbers is expected", help=help) from None
        if len(shape) != self.rank:
            raise self._wrong_rank(shape)
        for dim, size in enumerate(shape):
            if abs(size) >> 63:  # a 64-bit entry of dims would truncate it
                raise self.refuse(f"dim {dim} is {size}, which is too large")
        return shape

    def make(self, shape: tuple[int, ...], torch: bool) -> tuple[Any, int]:
        """Allocate an output, a numpy array or with `torch` a torch tensor; returns it and its address. Raises an OutOfMemoryError."""
        try:
            if torch:
                library = sys.modules["torch"]
                tensor = library.empty(self.dtype.array_shape(shape), dtype=self._torch_dtypes(library)[0])
                return tensor, tensor.data_ptr()
            array = _fresh(self.dtype.array_shape(shape), self.numpy)
        except (MemoryError, ValueError, RuntimeError):
            count = math.prod(shape) * self.dtype.itemsize
            raise OutOfMemoryError(f"no memory for {self.what}: {count} bytes", where=caller_span()) from None
        return array, address_of(array)

    def check_writable(self, taken: Taken, why: str) -> None:
        """Raise an error if the memory of an argument that the program writes is read-only."""
        if not taken.writable:
            raise self.refuse(f"{why}, and the array is read-only", help=self.way())

    def way(self, conversion: str = "") -> str:
        """Return the help text: `conversion`, unless the call writes the argument: then a converted copy would get the result."""
        if not self.written:
            return conversion
        filled = " with the values of the state" if self.input.consumed else ""
        return f"allocate a contiguous array of {self.numpy.name}{filled} and pass that: the call writes into it"

    def refuse(self, what: str, *, help: str = "") -> ShapeError:
        """Return the ShapeError for this argument; `what` says what is wrong with it."""
        return ShapeError(
            f"{self.what}: {what}",
            where=caller_span(),
            note="in this call",
            facts=[f"the signature says {self.input}"],
            help=help,
        )

    def _take_numpy(self, value: np.ndarray[Any, Any]) -> Taken:
        masked = sys.modules.get("numpy.ma")  # slow to import; a caller with a masked array has imported it
        if masked is not None and isinstance(value, masked.MaskedArray):
            raise self.refuse("it is a masked array, whose mask would be ignored", help=self.way(f"{self.input.name}.filled(0)"))
        name = self.input.name
        if value.dtype != self.numpy and not (self.dtype.storage and value.dtype == np.uint8):
            if value.dtype.newbyteorder("=") == self.numpy:
                way = f"{name}.astype({name}.dtype.newbyteorder('='))"
                raise self.refuse("its bytes are in the other order than this machine's", help=self.way(way))
            if value.dtype.hasobject:
                way = f"np.array({name}.tolist(), dtype={self._kind(self.dtype.long_name)})"
                raise self.refuse(f"it is an array of Python objects, expected {self.dtype}", help=self.way(way))
            kind = self._kind(self.dtype.long_name)
            bits = value.dtype.kind == "u" and kind.startswith("ml_dtypes.") and value.itemsize == self.numpy.itemsize
            raise self._wrong_dtype(value.dtype.name, self._packing() or f"{name}.{'view' if bits else 'astype'}({kind})")
        if value.ndim != self.rank:
            raise self._wrong_rank(value.shape)
        if value.flags.c_contiguous:
            strides = contiguous_strides(value.shape)
        else:
            strides = self._in_elements(value.shape, value.strides)
        return self._taken(address_of(value), value.shape, strides, value, value.flags.writeable)

    def _taken(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], owner: Any, writable: bool) -> Taken:
        """Return the `Taken` of an array, with shape and strides in array items converted to elements."""
        per = self.per_byte
        if per > 1 and shape:
            plain, shape = strides == contiguous_strides(shape), (*shape[:-1], shape[-1] * per)
            last = strides[-1] * (per if strides[-1] != 1 else 1)  # the elements inside of a byte are at a distance of 1
            strides = contiguous_strides(shape) if plain else (*(s * per for s in strides[:-1]), last)
        return Taken(address, (*shape, *strides), owner, writable, self.dtype.itemsize, per)

    def _kind(self, name: str) -> str:
        """Return a data type as code: numpy's own, or that of ml_dtypes."""
        return f"np.{name}" if hasattr(np, name) else f"ml_dtypes.{name}"

    def _packing(self) -> str:
        return f'pass packed bytes: from pliant.dtype import pack; pack({self.input.name}, "{self.dtype}")' if self.per_byte > 1 else ""

    def _torch_dtypes(self, torch: Any) -> list[Any]:
        """Return the torch dtypes that this data type may be passed as."""
        names = [self.dtype.long_name] if self.per_byte == 1 else []
        return [getattr(torch, n) for n in (*names, *(["uint8"] if self.dtype.storage else [])) if hasattr(torch, n)]

    def _in_elements(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
        """Convert strides in bytes to elements; a dim of size 1 gets the contiguous stride, since its own is meaningless.

        Raises a `ShapeError` if a stride is no multiple of the element's size.
        """
        in_elements = []
        for dim, (size, stride, plain) in enumerate(zip(shape, strides, contiguous_strides(shape), strict=True)):
            if size > 1 and stride % self.dtype.itemsize:
                raise self.refuse(
                    f"the stride of dim {dim} is {stride} bytes, no multiple of the element's {self.dtype.itemsize}",
                    help=self.way(f"np.ascontiguousarray({self.input.name})"),
                )
            in_elements.append(stride // self.dtype.itemsize if size > 1 else plain)
        return tuple(in_elements)

    def _take_torch(self, value: Any) -> Taken:
        torch, name = sys.modules["torch"], self.input.name
        if value.device.type != "cpu" or value.layout != torch.strided:
            kind = f"device {value.device}" if value.device.type != "cpu" else f"layout {value.layout}"
            raise self.refuse(f"it is a tensor of {kind}, expected a dense one on the CPU", help=self.way(f"{name}.cpu()"))
        if value.is_neg():
            raise self.refuse("it is a lazily negated view", help=self.way(f"{name}.resolve_neg()"))
        if value.requires_grad and torch.is_grad_enabled():
            raise self.refuse(
                "it requires a gradient, which compiled code does not compute",
                help=f"{name}.detach(), or call under torch.no_grad()",
            )
        if value.dtype not in self._torch_dtypes(torch):
            raise self._wrong_dtype(str(value.dtype), self._packing() or f"{name}.to(torch.{self.dtype.long_name})")
        shape = tuple(value.shape)
        if len(shape) != self.rank:
            raise self._wrong_rank(shape)
        if value.is_contiguous():
            strides = contiguous_strides(shape)
        else:
            plain = contiguous_strides(shape)
            strides = tuple(s if n > 1 else p for n, s, p in zip(shape, value.stride(), plain, strict=True))
        return self._taken(value.data_ptr(), shape, strides, value, True)

    def _take_dlpack(self, value: Any) -> Taken:
        try:
            view = np.from_dlpack(value)
        except (BufferError, TypeError, RuntimeError, ValueError) as e:
            raise self.refuse(f"its DLPack memory cannot be read: {e}", help="pass a numpy array on the CPU") from None
        return self._take_numpy(view)

    def _wrong_dtype(self, found: str, way: str) -> ShapeError:
        return self.refuse(f"its dtype is {found}, expected {self.dtype} ({self.dtype.long_name})", help=self.way(way))

    def _wrong_rank(self, shape: tuple[int, ...]) -> ShapeError:
        return self.refuse(f"it has {counted(len(shape), 'dim')} {shape}, expected {self.rank}")


def scalar_slot(given: Input, value: Any) -> int:
    """Return a scalar argument as its 64-bit entry of dims (region A): the integer, or the bits of the f64.

    Raises a `ShapeError` for what is no number of the argument's dtype.
    """
    kind = ALL[given.dtype]
    try:
        if isinstance(value, np.ndarray) or is_torch(value):
            value = value.item()  # raises if there is more than one element
        if isinstance(value, str | bytes):  # float() would parse them
            raise TypeError
        if kind.is_float:
            return int(struct.unpack("<q", struct.pack("<d", float(value)))[0])
        number = int(value) if isinstance(value, bool | np.bool_) else operator.index(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise _bad_scalar(given, f"{value!r} is no {'number' if kind.is_float else 'whole number'}") from None
    low, high = (0, 1) if kind.kind == "b" else (kind.min, kind.max)
    if not low <= number <= high:
        raise _bad_scalar(given, f"{number} is outside {low}..{high}")
    return number - (1 << 64) if number >= 1 << 63 else number


def _bad_scalar(given: Input, what: str) -> ShapeError:
    facts = [f"the signature says {given}"]
    return ShapeError(f"argument `{given.name}`: {what}", where=caller_span(), note="in this call", facts=facts)


def numpy_dtype(kind: DType) -> np.dtype[Any]:
    """Return the numpy dtype of arguments of this type; sub-byte types are passed as packed bytes.

    Without ml_dtypes, types that numpy lacks are passed as uint8 if they are storage types; others raise an Error.
    """
    try:
        return kind.array_dtype()
    except ImportError:
        if kind.storage:
            return np.dtype(np.uint8)
        raise Error(f"numpy has no {kind.long_name} of its own", help="pip install ml_dtypes") from None


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of a row-major array."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def is_torch(value: Any) -> bool:
    """True if the value is a torch tensor. Never imports torch: a caller with a tensor has imported it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def _find_address_of() -> Callable[[np.ndarray[Any, Any]], int]:
    """Return the fastest function for an array's address: reads the object's field, or numpy's slow attribute if the layout differs."""
    read, at = ctypes.c_size_t.from_address, Array.address.offset

    def plain(x: np.ndarray[Any, Any]) -> int:
        return x.ctypes.data

    return (lambda x: read(id(x) + at).value) if arrays_are_as_expected() else plain


address_of = _find_address_of()


def _fresh(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Allocate an array; a large one begins at a page boundary, as in native code (runtime/native/vectorcall.ll)."""
    size = math.prod(shape) * dtype.itemsize
    if size < LARGE:
        return np.empty(shape, dtype)
    memory = np.empty(size + PAGE, np.uint8)
    return np.ndarray(shape, dtype, memory, -address_of(memory) % PAGE)
