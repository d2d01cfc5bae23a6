"""OrtValue, OrtDevice and IOBinding: values in the memory of the CPU, and runs whose inputs and outputs are bound to such memory.

binding = session.io_binding()
binding.bind_cpu_input("x", x)
binding.bind_output("y")
session.run_with_iobinding(binding)
y, = binding.copy_outputs_to_cpu()
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtype import dtype
from ..frontends.onnx.dtypes import dtype_of, number_of, schema_name
from .errors import Fail, InvalidArgument
from .errors import NotImplemented as NotSupported

if TYPE_CHECKING:
    from .session import InferenceSession

STRING = 8  # ONNX's number of the type of texts
Array = np.ndarray[Any, Any]


class OrtDevice:
    """A device: the CPU, the only one; its number has no effect."""

    def __init__(self, device_id: int = 0) -> None:
        self._id = device_id

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """Returns the device of a name; raises NotImplemented for anything but "cpu"."""
        if ort_device_name.lower() != "cpu":
            raise NotSupported(f"there is no device {ort_device_name!r}", help='the device is "cpu"')
        return OrtDevice(device_id)

    def device_id(self) -> int:
        """Returns the number of the device."""
        return self._id

    def device_type(self) -> int:
        """Returns the type of the device: 0, the CPU."""
        return 0

    def device_vendor_id(self) -> int:
        """Returns the vendor of the device: 0, none."""
        return 0

    def device_mem_type(self) -> int:
        """Returns the kind of the device's memory: 0, the default."""
        return 0


class OrtValue:
    """A value: a tensor in the memory of a numpy array, a sequence (a list of arrays), or None, an optional value that is absent."""

    def __init__(self, value: Any) -> None:
        self._value = value

    @classmethod
    def ortvalue_from_numpy(cls, numpy_obj: Any, /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1) -> OrtValue:
        """Returns a value that shares the memory of an array; one that is not contiguous is copied.

        Raises NotImplemented for a device other than "cpu".
        """
        OrtDevice.make(device_type, device_id, vendor_id)
        return cls(np.asarray(numpy_obj, order="C"))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Any, /, onnx_element_type: int) -> OrtValue:
        """Returns a value whose elements are the bits of an array's, as another ONNX type of the same size; it shares the memory."""
        return cls(np.asarray(data, order="C").view(_numpy_type(onnx_element_type)))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Returns a tensor of this shape, and of a numpy type or the number of an ONNX type; its elements are 0.

        Raises NotImplemented for a device other than "cpu", InvalidArgument for a number that is no type of elements.
        """
        OrtDevice.make(device_type, device_id, vendor_id)
        return cls(np.zeros(tuple(shape), _numpy_type(element_type)))

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """Returns a value that shares the memory of a tensor of any library that knows DLPack; one that is not contiguous is copied."""
        return cls(data.numpy() if isinstance(data, OrtValue) else np.asarray(np.from_dlpack(data), order="C"))

    def numpy(self) -> Any:
        """Returns the array of a tensor, which shares its memory; raises Fail for what is no tensor."""
        if not self.is_tensor():
            raise Fail("a sequence of tensors is no numpy array")
        return self._value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Returns the array of a tensor, for numpy; raises Fail for what is no tensor."""
        array = self.numpy()
        return np.array(array, dtype=dtype, copy=True) if copy else np.asarray(array, dtype=dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.numpy().__dlpack_device__()

    def update_inplace(self, data: Any) -> None:
        """Copies an array or another value into this tensor.

        Raises TypeError for other objects, InvalidArgument for another type or shape.
        """
        if not isinstance(data, OrtValue | np.ndarray):
            raise TypeError("data must be a numpy.ndarray or an OrtValue.")
        copy_into(self.numpy(), data.numpy() if isinstance(data, OrtValue) else data, "the value")

    def shape(self) -> list[int]:
        """Returns the dims of a tensor; raises Fail for what is no tensor."""
        return list(self.numpy().shape)

    def element_type(self) -> int:
        """Returns the number of the ONNX type of a tensor's elements; raises Fail for what is no tensor."""
        array = self.numpy()
        return STRING if array.dtype.kind in "OUS" else number_of(dtype(array.dtype))

    def data_type(self) -> str:
        """Returns the type as ONNX writes it: `tensor(float)`, `seq(tensor(int64))`; an empty sequence is one of floats."""
        if not self.is_tensor():
            return f"seq({OrtValue(self._value[0]).data_type() if self._value else 'tensor(float)'})"
        array = self.numpy()
        return "tensor(string)" if array.dtype.kind in "OUS" else schema_name(dtype(array.dtype))

    def device_name(self) -> str:
        """Returns "cpu"."""
        return "cpu"

    def data_ptr(self) -> int:
        """Returns the address of a tensor's first element; raises Fail for what is no tensor."""
        return int(self.numpy().ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        """Returns the size of a tensor's elements in bytes; raises Fail for what is no tensor."""
        return int(self.numpy().nbytes)

    def has_value(self) -> bool:
        """True unless it is an optional value that is absent."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """True for a tensor; False for a sequence and an absent value."""
        return isinstance(self._value, np.ndarray)

    def is_sparse_tensor(self) -> bool:
        """Returns False: all tensors are dense."""
        return False

    def is_tensor_sequence(self) -> bool:
        """True for a sequence of tensors."""
        return isinstance(self._value, list)

    def _get_c_value(self) -> OrtValue:
        """Returns the value itself: there is no native object behind it."""
        return self


class OrtValueVector(list[OrtValue]):
    """A list of values, with the methods of the native one."""

    def push_back(self, value: OrtValue) -> None:
        """Appends a value."""
        self.append(value)


def unwrapped(value: Any) -> Any:
    """Returns what an OrtValue holds; other objects are returned as they are."""
    return value._value if isinstance(value, OrtValue) else value


def _copied(value: Any) -> Any:
    """Returns a copy of an array, or of a list of arrays; other objects are returned as they are."""
    if isinstance(value, list):
        return list(map(_copied, value))
    return value.copy() if isinstance(value, np.ndarray) else value


def copy_into(target: Array, source: Any, what: str) -> None:
    """Copies an array into the memory of another one of the same type and shape; raises InvalidArgument for others."""
    source = np.asarray(source)
    if source.dtype != target.dtype or source.shape != target.shape:
        facts = [f"it has room for {target.dtype}{list(target.shape)}, the result is {source.dtype}{list(source.shape)}"]
        raise InvalidArgument(f"the memory bound to {what} does not fit", facts=facts)
    np.copyto(target, source)


def _numpy_type(element_type: Any) -> Any:
    """Returns the numpy type of a numpy type or of the number of an ONNX type; raises InvalidArgument for another number."""
    if not isinstance(element_type, int):
        return np.dtype(element_type)
    of = dtype_of(int(element_type))
    if of is None:
        raise InvalidArgument(f"there are no tensors of the ONNX type {element_type} in memory")
    return of.numpy()


def _at_address(address: int, element_type: Any, shape: Sequence[int]) -> Array:
    """Returns an array of this type and shape over memory that the caller owns, without a copy."""
    kind = np.dtype(_numpy_type(element_type))
    size = int(np.prod(tuple(shape), dtype=np.int64)) * kind.itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), kind).reshape(tuple(shape))


class IOBinding:
    """The inputs of runs of one session and where its outputs go; keeps the outputs of the last run."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Array | None] = {}
        self._results: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Binds an input to an array, which each run reads anew; raises RuntimeError for a name that no input has."""
        self._inputs[self._known(name, self._session.get_inputs())] = arr_on_cpu

    def bind_input(self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int) -> None:
        """Binds an input to memory at an address, of this numpy or ONNX type and this shape; the memory stays the caller's.

        Raises NotImplemented for a device other than "cpu", and RuntimeError for a name that no input has.
        """
        OrtDevice.make(device_type, device_id)
        self.bind_cpu_input(name, _at_address(buffer_ptr, element_type, shape))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an input to an OrtValue, which each run reads anew; raises RuntimeError for a name that no input has."""
        self.bind_cpu_input(name, ortvalue)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Binds an output to memory at an address, else to memory of each run's own.

        Raises ValueError for an address without type and shape, RuntimeError for a name that no output has, NotImplemented for a device
        other than "cpu".
        """
        OrtDevice.make(device_type, device_id)
        if buffer_ptr is not None and (element_type is None or shape is None):
            raise ValueError("`element_type` and `shape` are to be provided if pre-allocated memory is provided")
        target = None if buffer_ptr is None or shape is None else _at_address(buffer_ptr, element_type, shape)
        self._outputs[self._known(name, self._session.get_outputs())] = target

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an output to the memory of a tensor; raises RuntimeError for a name that no output has, Fail for what is no tensor."""
        self._outputs[self._known(name, self._session.get_outputs())] = ortvalue.numpy()

    def run(self, run_options: Any) -> None:
        """Runs the session with what is bound, for the outputs that are bound; without one it does nothing.

        Raises what the session's `run` raises, and InvalidArgument if an output does not fit the memory that it is bound to.
        """
        results = self._session.run(list(self._outputs), self._inputs, run_options) if self._outputs else []
        self._results = []
        for (name, target), result in zip(self._outputs.items(), results, strict=True):
            if target is not None:
                copy_into(target, result, f'output "{name}"')
            self._results.append(OrtValue(result if target is None else target))

    def get_outputs(self) -> list[OrtValue]:
        """Returns the outputs of the last run, in the order of their binding."""
        return list(self._results)

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """Returns the outputs of the last run as a vector, in the order of their binding."""
        return OrtValueVector(self._results)

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Returns copies of the outputs of the last run, as arrays or lists of arrays, which the next run does not change."""
        return [_copied(unwrapped(value)) for value in self._results]

    def synchronize_inputs(self) -> None:
        """Returns at once: memory of the CPU needs no synchronization."""

    def synchronize_outputs(self) -> None:
        """Returns at once: memory of the CPU needs no synchronization."""

    def clear_binding_inputs(self) -> None:
        """Removes the bindings of all inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Removes the bindings of all outputs; the outputs of the last run stay."""
        self._outputs.clear()

    def _known(self, name: str, infos: Sequence[Any]) -> str:
        """Returns the name; raises RuntimeError if none of these records of inputs or outputs has it."""
        if not any(info.name == name for info in infos):
            raise RuntimeError(f"Failed to find NodeArg with name: {name} in the def list")
        return name
