"""The inputs of a run: what an application passes, as arrays of the model's types; what does not fit is refused as onnxruntime does.

feeds = Feeds(model.inputs)
arrays = feeds.checked({"bytes": [[1, 2, 3]]})     # a list becomes an array of the type that the model wants
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..frontends.onnx.dtypes import dtype_of, schema_name
from ..support.errors import ShapeError
from .errors import InvalidArgument
from .metadata import node_arg
from .values import OrtValue, unwrapped

_OWN_TYPES = "V"  # numpy's kind of the types of ml_dtypes (bfloat16, float8, int4), which may come as their bits


class _Tensor:
    """The declaration of a tensor input: its type, and its dims if the model gives them, None for those that vary."""

    def __init__(self, name: str, tensor: Any) -> None:
        known = dtype_of(tensor.elem_type)
        self.name = name
        self.type = None if known is None else np.dtype(known.numpy())
        self.own = known is None or known.bits < 8 or np.dtype(known.numpy()).kind == _OWN_TYPES
        self.dims = list(map(_extent, tensor.shape.dim)) if tensor.HasField("shape") else None

    def array(self, value: Any) -> Any:
        """Returns the value as an array of the declared type and shape; raises InvalidArgument for one that has others.

        One element in one dim is taken as a scalar where that is declared. A value whose declared type arrays do not have passes unchanged.
        """
        if self.type is None:
            return value
        array = self.typed(value)
        if self.dims == [] and array.shape == (1,):  # applications often pass a scalar as one element
            array = array.reshape(())
        self._check_dims(array.shape)
        return array

    def typed(self, value: Any) -> Any:
        """Returns the value as an array of the declared type; raises InvalidArgument for an array of another type.

        Lists and numbers are converted. Arrays are not, except for their byte order; those for bfloat16, float8 and sub-byte types are not
        checked, because they may come as bits.
        """
        if self.type is None:
            return value
        array = np.asarray(value) if hasattr(value, "__array__") else self._from_list(value)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if array.dtype != self.type and not self.own:
            given = "tensor(string)" if array.dtype.kind in "OUS" else f"tensor({array.dtype})"
            raise InvalidArgument(
                f"Unexpected input data type. Actual: ({_schema(array.dtype, given)}) , expected: ({_schema(self.type, str(self.type))})",
                facts=[f'it is the input "{self.name}"'],
                help=f"{self.name}.astype(numpy.{self.type})",
            )
        return array

    def _from_list(self, value: Any) -> Any:
        """Returns lists and numbers as an array of the declared type; raises InvalidArgument if they are none."""
        try:
            return np.asarray(value, self.type)
        except (TypeError, ValueError, OverflowError) as problem:
            raise InvalidArgument(f'input "{self.name}" is no tensor of {self.type}', facts=[str(problem)]) from None

    def _check_dims(self, shape: Sequence[int]) -> None:
        """Raises InvalidArgument, with onnxruntime's text, for another rank than the declared one or another size of a fixed dim."""
        if self.dims is None:
            return
        fix = " Please fix either the inputs/outputs or the model."
        if len(shape) != len(self.dims):
            raise InvalidArgument(f"Invalid rank for input: {self.name} Got: {len(shape)} Expected: {len(self.dims)}{fix}")
        wrong = [(i, got, want) for i, (got, want) in enumerate(zip(shape, self.dims, strict=True)) if want is not None and got != want]
        if wrong:
            lines = "\n".join(f" index: {i} Got: {got} Expected: {want}" for i, got, want in wrong)
            raise InvalidArgument(f"Got invalid dimensions for input: {self.name} for the following indices\n{lines}\n{fix}")


class _Sequence:
    """The declaration of an input that is a sequence of tensors."""

    def __init__(self, name: str, tensor: Any) -> None:
        self._item = _Tensor(name, tensor)

    def array(self, value: Any) -> Any:
        """Returns the items of a list or tuple as arrays of the declared type; raises InvalidArgument for one of another type.

        Their shapes are not checked. Anything but a list or tuple passes unchanged.
        """
        return [self._item.typed(unwrapped(item)) for item in value] if isinstance(value, list | tuple) else value


def _declared(info: Any) -> _Tensor | _Sequence | None:
    """Returns the declaration of an input that is a tensor or a sequence of tensors, None for others."""
    if info.type.WhichOneof("value") == "tensor_type":
        return _Tensor(info.name, info.type.tensor_type)
    item = info.type.sequence_type.elem_type
    return _Sequence(info.name, item.tensor_type) if item.WhichOneof("value") == "tensor_type" else None


def _extent(dim: Any) -> int | None:
    """Returns the size of a dim, None for one that varies: it has no value, or -1."""
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None


def _schema(of: Any, otherwise: str) -> str:
    """Returns a numpy type as ONNX writes it, `tensor(float)`; `otherwise` for texts, objects, times and complex numbers."""
    from ..dtype import dtype

    return otherwise if of.kind in "OUSmM" or of.kind == "c" else schema_name(dtype(of))


class Feeds:
    """The inputs that a model declares, made from their ValueInfoProtos; checks what an application passes for them."""

    def __init__(self, infos: Sequence[Any]) -> None:
        self._required = [i.name for i in infos if not node_arg(i).type.startswith("optional")]
        self._names = {i.name for i in infos}
        self._declared = {i.name: declared for i in infos if (declared := _declared(i)) is not None}

    def checked(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the inputs as the model takes them, by name; an optional input that is not given is None.

        Raises ShapeError for a missing input, InvalidArgument for an unknown name and for a value that does not fit.
        """
        missing = [n for n in self._required if n not in feed]
        if missing:
            raise ShapeError(f"Required inputs ({missing}) are missing from input feed ({list(feed)}).")
        unknown = [n for n in feed if n not in self._names]
        if unknown:
            raise InvalidArgument(f"Invalid input name: {unknown[0]}", facts=[f"the inputs are {', '.join(sorted(self._names))}"])
        values = {name: unwrapped(value) if isinstance(value, OrtValue) else value for name, value in feed.items()}
        values |= {name: None for name in self._names if name not in values}  # optional inputs
        return {name: self._declared[name].array(value) if name in self._declared else value for name, value in values.items()}
