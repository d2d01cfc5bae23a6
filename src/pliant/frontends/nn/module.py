"""The module API in the style of PyTorch: layers with named parameters.

Attributes that are modules or parameters are registered under their names, so `state_dict` has the same keys as the torch model.
Parameters are numpy arrays (memory-mapped arrays stay mapped). A new layer has parameters with a shape but without data, until
`load_state_dict` or an assignment sets them. There is no training and no random initialization.

    class Mlp(nn.Module):
        def __init__(self) -> None:
            self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)

        def forward(self, x: Tensor[f32, n, 64]) -> Tensor[f32, n, 64]:
            return self.down(ops.gelu(self.up(x)))

`forward` is plain Python over symbolic values: `pliant.compile(module)` traces it once (see trace.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ...dtype import DType, f32
from ...dtype import dtype as to_dtype
from ...support.errors import Error, ShapeError, counted
from ...support.source import caller_span
from .tracer import active_tracer

if TYPE_CHECKING:
    from ...program import Program

Array = np.ndarray[Any, Any]


class Parameter:
    """An array with a fixed shape and dtype that belongs to a module; it may have no data yet."""

    __slots__ = ("array", "dtype", "shape")

    def __init__(self, data: Any = None, *, shape: Sequence[int] | None = None, dtype: Any = None) -> None:
        if data is not None:
            data = np.asarray(data)
            shape = data.shape
        if shape is None:
            raise Error("a parameter is made of an array, or of a shape", where=caller_span())
        self.shape = tuple(map(int, shape))
        self.dtype: DType = to_dtype(dtype) if dtype is not None else f32 if data is None else to_dtype(data.dtype)
        self.array: Array | None = None
        if data is not None:
            self.set(data)

    def set(self, data: Any, name: str = "the parameter") -> None:
        """Sets the data, converted if its dtype differs; raises if the shape differs. Arrays of the right dtype are not copied."""
        array = np.asarray(data)
        if array.shape != self.shape:
            raise ShapeError(
                f"{name} has the shape {self.shape}, the array has {array.shape}",
                where=caller_span(),
                help="transpose or reshape the array, or make the layer with other sizes",
            )
        same = to_dtype(array.dtype) is self.dtype
        self.array = np.ascontiguousarray(array if same else array.astype(self.dtype.numpy())).reshape(self.shape)

    def __repr__(self) -> str:
        return f"Parameter[{', '.join(map(str, (self.dtype, *self.shape)))}]{'' if self.array is not None else ' without data'}"


class Buffer(Parameter):
    """A parameter that is not trained: the running mean of a norm, a table of positions."""

    __slots__ = ()


class Module:
    """The base class of layers and models: parameters and modules that are assigned to attributes are registered under their names.

    A subclass defines `forward`. `pliant.compile(module)` traces it into a program; `inputs` may give the annotations of its parameters.
    """

    inputs: Mapping[str, Any] = {}  # annotations of `forward`'s parameters by name; they take precedence over written ones
    _scope: Mapping[str, Any] = {}  # the local names of the function that defines the class, if one does

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        around = sys._getframe(1)
        if around.f_locals is not around.f_globals:  # string annotations of `forward` may refer to these names
            cls._scope = dict(around.f_locals)

    def __init__(self) -> None:
        """Does nothing, so a subclass need not call it: `__setattr__` registers parameters and modules."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter | Module):
            self.__dict__.pop(name, None)
            self._children()[name] = value
            return
        own = self.__dict__.get("_registered", {})
        if isinstance(own.get(name), Parameter) and value is not None:
            own[name].set(value, f"parameter `{name}`")
            return
        own.pop(name, None)
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        child = self.__dict__.get("_registered", {}).get(name)
        if child is None:
            raise AttributeError(f"`{type(self).__name__}` has no attribute `{name}`")
        tracer = active_tracer()
        return tracer.parameter(child) if tracer is not None and isinstance(child, Parameter) else child

    def __delattr__(self, name: str) -> None:
        if self.__dict__.get("_registered", {}).pop(name, None) is None:
            object.__delattr__(self, name)

    def _children(self) -> dict[str, Parameter | Module]:
        """Returns the registered parameters and submodules by name, in order."""
        registered: dict[str, Parameter | Module] = self.__dict__.setdefault("_registered", {})
        return registered

    def forward(self, *args: Any, **named: Any) -> Any:
        """Computes the module's results from its inputs; subclasses must define it, here it raises an Error."""
        raise Error(
            f"`{type(self).__name__}` has no forward", where=caller_span(), help="define `def forward(self, x: Tensor[f32, n]): ...`"
        )

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Runs `forward` inside another module's `forward`; raises an Error outside of tracing."""
        tracer = active_tracer()
        if tracer is None:
            raise Error(
                f"the module `{type(self).__name__}` is called outside of a forward",
                where=caller_span(),
                help="f = pliant.compile(module), then call f with arrays",
            )
        with tracer.inside(self):
            return self.forward(*args, **named)

    # Submodules and parameters.

    def children(self) -> Iterator[Module]:
        """Yields the direct submodules."""
        return (c for c in self._children().values() if isinstance(c, Module))

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Yields this module and all its submodules with their paths; a shared one only once, under its first path."""
        return self._named_modules(prefix, set())

    def _named_modules(self, prefix: str, seen: set[int]) -> Iterator[tuple[str, Module]]:
        if id(self) in seen:
            return
        seen.add(id(self))
        yield prefix, self
        for name, child in self._children().items():
            if isinstance(child, Module):
                yield from child._named_modules(_join(prefix, name), seen)

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Yields the parameters with their paths (`encoder.layer.3.attention.query.weight`), without buffers; a shared one only once."""
        seen: set[int] = set()
        for path, parameter in self._every_parameter(prefix):
            if id(parameter) not in seen and not isinstance(parameter, Buffer):
                seen.add(id(parameter))
                yield path, parameter

    def _every_parameter(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Yields all parameters and buffers with their paths; a shared one under each of its paths."""
        for name, child in self._children().items():
            path = _join(prefix, name)
            if isinstance(child, Parameter):
                yield path, child
            else:
                yield from child._every_parameter(path)

    def parameters(self) -> Iterator[Parameter]:
        """Yields the parameters of the module and its submodules, without buffers; a shared one only once."""
        return (p for _, p in self.named_parameters())

    # Data.

    def state_dict(self) -> dict[str, Array]:
        """Returns the arrays of all parameters and buffers that have data, under torch's names; a shared one under each of its names."""
        return {path: p.array for path, p in self._every_parameter() if p.array is not None}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> Self:
        """Sets the data of parameters by name and returns the module; with `strict`, missing or unknown names raise an Error.

        Raises a ShapeError if a shape differs.
        """
        mine = dict(self._every_parameter())
        missing = [name for name in mine if name not in state]
        extra = [name for name in state if name not in mine]
        if strict and (missing or extra):
            raise _names_differ(type(self).__name__, missing, extra)
        for name, parameter in mine.items():
            if name in state:
                parameter.set(state[name], f"parameter `{name}`")
        return self

    def to(self, dtype: Any) -> Self:
        """Converts the float parameters and buffers to another dtype, in place, and returns the module."""
        wanted = to_dtype(dtype)
        for parameter in {id(p): p for _, p in self._every_parameter()}.values():
            if parameter.dtype.is_float and parameter.dtype is not wanted:
                parameter.dtype = wanted
                if parameter.array is not None:
                    parameter.set(parameter.array)
        return self

    def to_program(self) -> Program:
        """Traces `forward` once with symbolic values; returns the graph program. Raises an Error if a parameter has no data."""
        from ...program import Program
        from .trace import trace

        return Program.of(trace(self))

    def __repr__(self) -> str:
        inner = [
            f"  ({name}): " + repr(child).replace("\n", "\n  ") for name, child in self._children().items() if isinstance(child, Module)
        ]
        details = self.details()
        return f"{type(self).__name__}({details})" if not inner else f"{type(self).__name__}({details}\n" + "\n".join(inner) + "\n)"

    def details(self) -> str:
        """Returns the settings of the layer as text for `repr`."""
        return ""


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _names_differ(what: str, missing: list[str], extra: list[str]) -> Error:
    """Returns the error for a state whose names do not match the module's parameters."""
    from ...support.resolve import near

    facts = [f"{counted(len(names), 'name')} {how}: {', '.join(names[:6])}{', …' if len(names) > 6 else ''}" for names, how in (
        (missing, "missing"), (extra, "not of this module")) if names]  # fmt: skip
    guess = near(missing[0], extra) if missing and extra else ""
    return Error(
        f"the state is not that of `{what}`",
        where=caller_span(),
        facts=facts,
        help=guess or "rename the keys, or pass strict=False to take what fits",
    )


class Sequential(Module):
    """A module that applies modules, or functions of one value such as `ops.gelu`, one after the other."""

    def __init__(self, *layers: Module | Callable[[Any], Any]) -> None:
        self.functions: dict[int, Callable[[Any], Any]] = {}
        self.length = 0
        for layer in layers:
            self.append(layer)

    def append(self, layer: Module | Callable[[Any], Any]) -> Self:
        """Adds a layer at the end; returns the module itself."""
        if isinstance(layer, Module):
            setattr(self, str(self.length), layer)
        else:
            self.functions[self.length] = layer
        self.length += 1
        return self

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        at = range(self.length)[index]
        return self.functions[at] if at in self.functions else self._children()[str(at)]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(self.length))

    def forward(self, x: Any) -> Any:
        """Applies all layers to `x` in order."""
        for layer in self:
            x = layer(x)
        return x


class ModuleList(Module):
    """A list of modules, registered under their indices; it has no `forward`."""

    def __init__(self, modules: Sequence[Module] = ()) -> None:
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> Self:
        """Adds a module at the end; returns the list itself."""
        setattr(self, str(len(self)), module)
        return self

    def __len__(self) -> int:
        return len(self._children())

    def __getitem__(self, index: int) -> Any:
        return list(self._children().values())[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._children().values()))
