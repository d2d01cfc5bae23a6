"""Options that model commands share: `--dim`, `-i` and `--quantize`, and the input arrays that they describe.

--dim height=480        a value          -i x=photo.jpg    an image: 0..1, in the layout of the input, resized if the input has a size
--dim height=1..1280    a range          -i x=x.npy        an array; x.npz has arrays of several inputs by name: -i x.npz
--dim width=height      the same dim     -i x=zeros        zeros, or random (the default)
                                         -i rate=16000     the same number in every element
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..support.errors import ModelFileError
from . import Usage
from .images import read_picture


def add_dims(parser: argparse.ArgumentParser) -> None:
    """Adds the option `--dim` to the parser."""
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=VALUE", help="a dim: a value, a range 1..1280, or another dim")


def read_dims(options: Sequence[str]) -> dict[str, Any]:
    """Parses `--dim` options to the form that `pliant.compile` takes; raises Usage for anything else."""
    dims: dict[str, Any] = {}
    for text in options:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier() or not value:
            raise Usage(f"`--dim {text}` is not understood", "write --dim height=480, --dim height=1..1280 or --dim width=height")
        low, dots, high = value.partition("..")
        if dots and low.isdigit() and high.isdigit():
            dims[name] = (int(low), int(high))
        elif value.isdigit() or value.isidentifier():
            dims[name] = int(value) if value.isdigit() else value
        else:
            raise Usage(f"`{value}` is no value of dim `{name}`", "write a number, a range such as 1..1280, or the name of another dim")
    return dims


def single_values(dims: Mapping[str, Any], command: str) -> dict[str, int]:
    """Returns the dims of one run; a dim that equals another has its value. Raises Usage for a range."""
    wide = next((name for name, value in dims.items() if isinstance(value, tuple)), None)
    if wide is not None:
        low, high = dims[wide]
        raise Usage(
            f"`pliant {command}` needs one value of dim `{wide}`, not the range {low}..{high}",
            f"write --dim {wide}={low}; a compiled model takes every value, and `pliant compile` takes ranges",
        )
    same = {name: value for name, value in dims.items() if isinstance(value, str)}
    values = {name: value for name, value in dims.items() if isinstance(value, int)}
    values |= {name: values[other] for name, other in same.items() if other in values}
    return values | {other: values[name] for name, other in same.items() if name in values}


def batch_dims(inputs: Mapping[str, Any]) -> dict[str, int]:
    """Returns the dims that count examples, with the value 1: those that are only ever the first of several dims of an input."""
    first = {str(t.shape[0]) for t in inputs.values() if len(t.shape) > 1 and not _is_number(t.shape[0])}
    others = {str(d) for t in inputs.values() for d in (t.shape[1:] if len(t.shape) > 1 else ())}
    return dict.fromkeys(sorted(first - others), 1)


def add_quantize(parser: argparse.ArgumentParser) -> None:
    """Adds the option `--quantize` to the parser."""
    parser.add_argument("--quantize", choices=("int8", "int4"), help="quantize weights to 8 or 4 bits, and show the error of the outputs")


def small_feeds(inputs: Mapping[str, Any], dims: Mapping[str, Any]) -> dict[str, Any]:
    """Returns random input arrays: with the dims that are set, otherwise 32 or the nearest value in the dim's range."""
    values: dict[str, Any] = {str(d): 32 for t in inputs.values() for d in t.shape if not _is_number(d)}
    for name, value in dims.items():
        values[name] = min(max(32, value[0]), value[1]) if isinstance(value, tuple) else value
    values |= {name: values.get(value, 32) for name, value in values.items() if isinstance(value, str)}
    return feeds(inputs, dict.fromkeys(inputs, "random"), values)


def read_inputs(options: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Parses `-i` options: the source of each input as text; `random` for inputs without one. Raises Usage for an unknown input."""
    sources = dict.fromkeys(names, "random")
    for text in options:
        name, equals, source = text.partition("=")
        if not equals and text.endswith(".npz"):
            sources |= dict.fromkeys(_members(text, names), text)
            continue
        if not equals:
            name, source = (names[0] if len(names) == 1 else ""), text
        if name not in sources:
            raise Usage(f"the model has no input `{name or text}`", f"its inputs are {', '.join(names)}: write -i {names[0]}=x.npy")
        sources[name] = source
    return sources


def _members(path: str, names: Sequence[str]) -> list[str]:
    """Returns the inputs that a .npz file has arrays of; raises Usage if it has one that is no input."""
    members = list(_loaded(path))
    odd = next((m for m in members if m not in names), None)
    if odd is not None:
        raise Usage(f"{path} has an array `{odd}`, and the model has no such input", f"its inputs are {', '.join(names)}")
    return members


def feeds(
    inputs: Mapping[str, Any], sources: Mapping[str, str], dims: Mapping[str, Any], otherwise: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Returns an array for each input (a map from name to annotation); dims come from the options and from the shapes of files.

    `otherwise` has the values of dims of which neither says anything. Raises Usage if a dim has no value, or two.
    """
    known = dict.fromkeys(str(d) for t in inputs.values() for d in t.shape if not _is_number(d))
    unknown = next((name for name in dims if name not in known), None)
    if unknown is not None:
        raise Usage(f"the model has no dim `{unknown}`", f"its dims are {', '.join(known)}" if known else "all its dims are numbers")
    values = {name: value for name, value in dims.items() if isinstance(value, int)}
    arrays = {name: _file(sources[name], inputs[name], values, name) for name in inputs if not _is_made(sources[name])}
    for name, array in arrays.items():
        for dim, n in zip(inputs[name].shape, array.shape, strict=False):
            if values.setdefault(str(dim), n) != n:
                raise Usage(f"dim `{dim}` is {values[str(dim)]}, and {n} in {sources[name]}", "they must agree")
    values |= {name: value for name, value in (otherwise or {}).items() if name not in values}
    missing = dict.fromkeys(
        str(d) for name, t in inputs.items() if name not in arrays for d in t.shape if not _is_number(d) and str(d) not in values
    )
    if missing:
        raise Usage(f"the value of dim `{next(iter(missing))}` is missing", "give " + " ".join(f"--dim {name}=…" for name in missing))
    return {name: arrays[name] if name in arrays else _made(sources[name], t, values, name) for name, t in inputs.items()}


def example_dims(inputs: Mapping[str, Any], dims: Mapping[str, int]) -> dict[str, int]:
    """Returns an example size for each dim of the inputs, as `feeds` takes them: that of `dims` where it has one, else 128 or near it."""
    from ..sym.expr import free_vars
    from ..sym.semantics import evaluate
    from ..sym.typical import typical

    shapes = {str(d): d for t in inputs.values() for d in t.shape if not _is_number(d)}
    variables = dict.fromkeys(v for d in shapes.values() for v in free_vars(d))
    values = {v: dims.get(v.name, n) for v, n in typical(variables).items()}
    return {name: int(evaluate(d, values)) for name, d in shapes.items()}


def has_state(inputs: Mapping[str, Any]) -> bool:
    """True if a run updates one of the inputs in place."""
    return any(t.state for t in inputs.values())


def fresh(arrays: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of one run: state is copied, because a run updates it in place."""
    return {name: array.copy() if inputs[name].state else array for name, array in arrays.items()}


def _is_made(source: str) -> bool:
    """True if a source is not a file: random numbers, or one number for all elements."""
    try:
        return source in ("random", "zeros") or float(source) is not None
    except ValueError:
        return False


def _is_number(dim: Any) -> bool:
    return str(dim).isdigit()


def _made(kind: str, t: Any, values: Mapping[str, int], name: str) -> Any:
    """Returns a generated input array: random (seeded), zeros, or one number."""
    import numpy as np

    shape = [int(str(d)) if _is_number(d) else values[str(d)] for d in t.shape]
    if kind != "random":
        value = _cast(np.array(0.0 if kind == "zeros" else float(kind)), t, name, kind)
        return np.full(shape, value, t.dtype.numpy())
    random = np.random.default_rng(0)
    if t.dtype.is_float:
        return random.standard_normal(shape).astype(t.dtype.numpy())
    return random.integers(0, 2, shape).astype(t.dtype.numpy())


def _file(path: str, t: Any, values: Mapping[str, int], name: str) -> Any:
    """Returns an input array read from a .npy file, a .npz file or an image, in the dtype of the input.

    Raises Usage if there is no such file, ModelFileError if it cannot be read.
    """
    import numpy as np

    if not Path(path).exists():
        raise Usage(f"there is no file `{path}`", "an input is a .npy file, an image, `random`, `zeros` or a number")
    if Path(path).suffix not in (".npy", ".npz"):
        return read_picture(path, t, values)
    array = _loaded(path)
    if not isinstance(array, np.ndarray):
        if name not in array and len(array) != 1:
            raise Usage(f"{path} has no array `{name}`", f"it has {', '.join(array)}")
        array = array[name] if name in array else next(iter(array.values()))
    return _cast(array, t, name, path)


def _cast(array: Any, t: Any, name: str, source: str) -> Any:
    """Returns an array in the dtype of the input; raises Usage if an integer input cannot hold its values."""
    import numpy as np

    if array.dtype == t.dtype.numpy():
        return array
    with np.errstate(invalid="ignore"):
        cast = array.astype(t.dtype.numpy())
    if cast.dtype.kind in "iu" and not np.array_equal(cast, array):
        raise Usage(f"`{source}` has values that input `{name}` cannot hold: it is {t.dtype}", "write whole numbers in its range")
    return cast


def _loaded(path: str) -> Any:
    """Returns the array of a .npy file, or the arrays of a .npz file by name.

    Raises Usage if there is no such file, ModelFileError if it cannot be read.
    """
    import zipfile

    import numpy as np

    if not Path(path).exists():
        raise Usage(f"there is no file `{path}`", "an input is a .npy file, an image, `random`, `zeros` or a number")
    try:
        content = np.load(path, allow_pickle=False)
        return content if isinstance(content, np.ndarray) else {name: content[name] for name in content.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as problem:
        raise ModelFileError(f"{path} is no {Path(path).suffix} file: {problem}") from None
