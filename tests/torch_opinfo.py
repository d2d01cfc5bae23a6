"""OpInfo, torch's own table of operators with sample inputs, as a test of the import rules: each sample against eager in f64.

    python tests/torch_opinfo.py [--samples 5] [name…]        # prints what fails, and the numbers of samples that pass
    python tests/torch_opinfo.py --list                       # names of the entries in scope, by the rules of `in_scope`
    python tests/torch_opinfo.py --expected                   # rewrites the file of expected failures

`torch_opinfo_scope.txt` fixes the entries. `torch_opinfo_failures.json` has the entries and dtypes of which a sample is expected to fail,
and may only shrink. Samples run in the interpreter: the compiler is compared with it elsewhere.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
SCOPE, FAILURES = HERE / "torch_opinfo_scope.txt", HERE / "torch_opinfo_failures.json"
DTYPES = ("float32", "int64", "bool")
# Outside: linear algebra, Fourier transforms, special functions and polynomials, random numbers, complex numbers, sparse tensors,
# training, and what is about memory or Python objects.
_OUTSIDE = re.compile(
    r"linalg\.|fft\.|masked\.|sparse|special\.|jiterator|torch\.ops|_refs|.*(bessel|gamma|polynomial|chebyshev|hermite|laguerre|legendre)"
    r"|.*(random|dropout|multinomial|bernoulli|cauchy|exponential|geometric|log_normal|normal$|uniform|rand|poisson|rrelu)"
    r"|.*(complex|conj|imag|real$|polar|angle|stft|view_as_|cholesky|triangular|lu_|geqrf|qr$|svd|pinverse|inverse|eig|renorm|lobpcg|ormqr|lstsq"
    r"|matrix_exp|logdet|slogdet|det$|symeig|solve|pca_lowrank|nuc$|cov$|corrcoef|trapz|trapezoid|gradient|empty|new_empty|strided"
    r"|to_sparse|unsafe_|resize|item$|equal$|allclose|is_set|data_ptr|tensor_split|bincount|histogram|ctc|embedding_bag|fake_quant"
    r"|quantize|segment_reduce|\bput$|unique|nonzero|erfinv|igamma|polygamma|lgamma|digamma|mvl|i0$|sinc$|native_|batch_norm|unfold_copy"
    r"|backward|scaled_mm|cdouble|cfloat|chalf|hash_tensor|lu$|normal\.|fractional|\.grad$"
    r"|broadcast_shapes|multi_head_attention_forward|linear_cross_entropy|triton)"
)


def entries() -> dict[str, Any]:
    """Returns all entries of OpInfo by name and variant."""
    from torch.testing._internal.common_methods_invocations import op_db

    return {f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name: op for op in op_db}


def in_scope() -> list[str]:
    """Returns the names of the entries in scope, as the file fixes them."""
    return SCOPE.read_text(encoding="utf-8").split()


def samples(op: Any, dtype: str, most: int | None) -> Iterator[Any]:
    """Yields samples of an entry that eager itself can run."""
    import torch

    kind = getattr(torch, dtype)
    if kind not in op.supported_dtypes("cpu"):
        return
    torch.manual_seed(0)
    yield from islice(op.sample_inputs("cpu", kind, requires_grad=False), most)


def check(op: Any, sample: Any) -> str:
    """Imports and runs one sample; returns why it fails, or an empty text."""
    import torch
    from torch.utils import _pytree as pytree

    leaves, spec = pytree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
    places = [k for k, v in enumerate(leaves) if isinstance(v, torch.Tensor)]

    def call(*tensors: Any) -> Any:
        filled = list(leaves)
        for k, t in zip(places, tensors, strict=True):
            filled[k] = t
        value, args, kwargs = pytree.tree_unflatten(filled, spec)
        return op.op(value, *args, **kwargs)

    tensors = [leaves[k].detach().contiguous() for k in places]
    eager = _flat(call(*[t.clone() for t in tensors]))
    exact = _flat(call(*[t.double() if t.is_floating_point() else t.clone() for t in tensors]))
    try:
        found = _ours(call, tensors)
    except Exception as problem:
        return f"{type(problem).__name__}: {str(problem)[:200]}"
    if len(found) != len(eager):
        return f"{len(found)} results, {len(eager)} expected"
    return next((text for text in map(_difference, found, exact, eager) if text), "")


def _ours(call: Any, tensors: list[Any]) -> list[Any]:
    """Returns the results of the imported program in the interpreter."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    from pliant.frontends.torch.importer import list_missing
    from pliant.frontends.torch.region import import_region
    from pliant.interp.graph import run_graph

    with torch.no_grad():
        plain = torch.func.functionalize(lambda *xs: tuple(_flat(call(*xs))), remove="mutations_and_views")
        graph = make_fx(plain, decomposition_table=_tables()[1], tracing_mode="fake")(*[t.clone() for t in tensors])
    graph.graph.eliminate_dead_code()
    list_missing(graph.graph)
    region = import_region(graph, {})
    with np.errstate(all="ignore"):
        results = run_graph(region.function, [tensors[k].numpy() for k in region.arguments])
    return [results[k] for k in region.outputs if k is not None]


@cache
def _tables() -> Any:
    """Returns the composites that stay whole, and the table of the other decompositions."""
    from torch.export.exported_program import _split_decomp_table_to_cia_and_python_decomp

    from pliant.frontends.torch.table import decompositions

    return _split_decomp_table_to_cia_and_python_decomp(decompositions())


def _flat(value: Any) -> list[Any]:
    import torch
    from torch.utils import _pytree as pytree

    return [v for v in pytree.tree_leaves(value) if isinstance(v, torch.Tensor)]


def _difference(found: Any, exact: Any, eager: Any) -> str:
    """Returns how a result differs from f64 eager; f32 may be as far off as 4 times f32 eager, or 1e-5 of the largest element."""
    want, other = exact.detach().numpy(), eager.detach().numpy()
    if found.shape != other.shape or found.dtype != other.dtype:
        return f"{found.dtype} {found.shape}, {other.dtype} {other.shape} is expected"
    if found.dtype.kind != "f":
        return "" if np.array_equal(found, other) else "other values"
    if not (np.array_equal(np.isnan(found), np.isnan(other)) and np.array_equal(np.isinf(found), np.isinf(other))):
        return "NaN or infinity in other places"
    finite = np.isfinite(want) & np.isfinite(other)
    if not finite.any():
        return ""
    error, own = (np.abs(v[finite].astype(np.float64) - want[finite]) for v in (found, other))
    limit = np.maximum(4 * own, 1e-5 * max(float(np.abs(want[finite]).max()), 1e-30))
    return "" if (error <= limit).all() else f"off by {float((error - limit).max()):.2g}"


def outcomes(names: list[str], most: int | None) -> Iterator[tuple[str, str, str]]:
    """Yields the entry, the dtype, and why it fails (empty if it passes), for each sample."""
    from torch.export.exported_program import _override_composite_implicit_decomp

    warnings.filterwarnings("ignore")
    table = entries()
    with _override_composite_implicit_decomp(_tables()[0]):  # it takes a second, and leaves eager as it is
        for name in names:
            for dtype in DTYPES:
                for text in _of_entry(table[name], dtype, most):
                    yield name, dtype, text


def _of_entry(op: Any, dtype: str, most: int | None) -> Iterator[str]:
    """Yields why each sample of an entry fails; samples that eager itself cannot run are left out."""
    iterator = samples(op, dtype, most)
    while True:
        try:
            sample = next(iterator, None)
            if sample is None:
                return
            text = check(op, sample)
        except Exception:
            continue
        yield text


def main(args: list[str]) -> None:
    """Runs samples and prints what fails."""
    if "--list" in args:
        print("\n".join(n for n in entries() if not _OUTSIDE.match(n)))
        return
    most = int(args[args.index("--samples") + 1]) if "--samples" in args else None
    names = [a for a in args if not a.startswith("-") and not a.isdigit()] or in_scope()
    counts: Counter[str] = Counter()
    failed: dict[str, set[str]] = {}
    for name, dtype, text in outcomes(names, most):
        counts["passed" if not text else "failed"] += 1
        if text and dtype not in failed.setdefault(name, set()):
            failed[name].add(dtype)
            print(f"{name} {dtype}: {text}", flush=True)
    print(f"{counts['passed']} of {counts.total()} samples pass; {len(failed)} of {len(names)} entries have one that fails")
    if "--expected" in args:
        FAILURES.write_text(json.dumps({n: sorted(d) for n, d in sorted(failed.items())}, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
