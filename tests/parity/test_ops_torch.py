"""The references of operators against torch, where it is installed: geometry, conventions and defaults are those that users know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pliant import ops
from pliant.dtype import dtype
from pliant.graph.builder import Builder
from pliant.graph.node import Tensor
from pliant.interp.graph import run_graph
from pliant.sym.expr import const

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional
RNG = np.random.default_rng(3)


def reference(call: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    """The results of an operator call in the interpreter."""
    builder = Builder("case")
    params = [builder.param(f"x{k}", Tensor(dtype(a.dtype), tuple(map(const, a.shape)))) for k, a in enumerate(arrays)]
    with builder:
        result = call(*params)
    return run_graph(builder.finish(list(result) if isinstance(result, tuple) else [result]), arrays)


def a(*shape: int) -> np.ndarray:
    return RNG.uniform(-2, 2, shape).astype(np.float32)


X1, X2, X3 = a(2, 4, 9), a(2, 4, 9, 8), a(1, 4, 5, 6, 5)
CASES: dict[str, tuple[tuple[np.ndarray, ...], Callable[..., Any], Callable[..., Any]]] = {
    "conv1d": ((X1, a(6, 4, 3), a(6)), lambda *x: ops.conv(*x, stride=2, padding=1), lambda *x: F.conv1d(*x, stride=2, padding=1)),
    "conv2d": (
        (X2, a(6, 2, 3, 2), a(6)),
        lambda *x: ops.conv(*x, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
        lambda *x: F.conv2d(*x, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
    ),
    "conv2d_same": ((X2, a(6, 4, 4, 3)), lambda *x: ops.conv(*x, padding="same"), lambda *x: F.conv2d(*x, padding="same")),
    "conv3d": ((X3, a(2, 4, 2, 3, 2)), lambda *x: ops.conv(*x, padding=1), lambda *x: F.conv3d(*x, padding=1)),
    "conv_transpose2d": (
        (X2, a(4, 3, 3, 2), a(6)),
        lambda *x: ops.conv_transpose(*x, stride=2, padding=1, output_padding=1, dilation=2, groups=2),
        lambda *x: F.conv_transpose2d(*x, stride=2, padding=1, output_padding=1, dilation=2, groups=2),
    ),
    "conv_transpose1d": ((X1, a(4, 3, 4)), lambda *x: ops.conv_transpose(*x, stride=3), lambda *x: F.conv_transpose1d(*x, stride=3)),
    "max_pool": (
        (X2,),
        lambda x: ops.max_pool(x, 3, stride=2, padding=1, dilation=2, ceil_mode=True),
        lambda x: F.max_pool2d(x, 3, stride=2, padding=1, dilation=2, ceil_mode=True),
    ),
    **{
        f"avg_pool_{ceil}_{include}": (
            (X2,),
            lambda x, ceil=ceil, include=include: ops.avg_pool(x, 3, stride=2, padding=1, ceil_mode=ceil, count_include_pad=include),
            lambda x, ceil=ceil, include=include: F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=ceil, count_include_pad=include),
        )
        for ceil in (False, True)
        for include in (False, True)
    },
    "lp_pool": ((np.abs(X2),), lambda x: ops.lp_pool(x, 3, stride=2, p=3), lambda x: F.lp_pool2d(x, 3, 3, stride=2)),
    "adaptive_avg_pool": ((X2,), lambda x: ops.adaptive_avg_pool(x, (4, 5)), lambda x: F.adaptive_avg_pool2d(x, (4, 5))),
    "adaptive_max_pool": ((X2,), lambda x: ops.adaptive_max_pool(x, (4, 5)), lambda x: F.adaptive_max_pool2d(x, (4, 5))),
    **{
        f"pad_{mode}": (
            (X2,),
            lambda x, mode=mode: ops.pad(x, [(0, 0), (0, 0), (2, 1), (3, 0)], mode=mode),
            lambda x, their=their: F.pad(x, (3, 0, 2, 1), mode=their),
        )
        for mode, their in (("constant", "constant"), ("reflect", "reflect"), ("edge", "replicate"), ("circular", "circular"))
    },
    "resize_nearest": (
        (X2,),
        lambda x: ops.resize(x, sizes=[2, 4, 20, 5], coordinates="asymmetric", nearest="floor"),
        lambda x: F.interpolate(x, (20, 5), mode="nearest"),
    ),
    "resize_linear": (
        (X2,),
        lambda x: ops.resize(x, sizes=[2, 4, 20, 5], mode="linear"),
        lambda x: F.interpolate(x, (20, 5), mode="bilinear"),
    ),
    "resize_linear_scale": (
        (X2,),
        lambda x: ops.resize(x, scales=[1, 1, 1.3, 2.5], mode="linear"),
        lambda x: F.interpolate(x, scale_factor=(1.3, 2.5), mode="bilinear"),
    ),
    "resize_corners": (
        (X2,),
        lambda x: ops.resize(x, sizes=[2, 4, 20, 5], mode="linear", coordinates="align_corners"),
        lambda x: F.interpolate(x, (20, 5), mode="bilinear", align_corners=True),
    ),
    "resize_cubic": (
        (X2,),
        lambda x: ops.resize(x, sizes=[2, 4, 20, 5], mode="cubic"),
        lambda x: F.interpolate(x, (20, 5), mode="bicubic"),
    ),
    "pixel_shuffle": ((X2,), lambda x: ops.pixel_shuffle(x, 2), lambda x: F.pixel_shuffle(x, 2)),
    "layer_norm": ((X2, a(9, 8), a(9, 8)), lambda *x: ops.layer_norm(*x, axis=2), lambda x, w, b: F.layer_norm(x, (9, 8), w, b)),
    "group_norm": ((X2, a(4), a(4)), lambda *x: ops.group_norm(*x, groups=2), lambda x, w, b: F.group_norm(x, 2, w, b)),
    "instance_norm": ((X2, a(4), a(4)), ops.instance_norm, lambda x, w, b: F.instance_norm(x, weight=w, bias=b)),
    "batch_norm": (
        (X2, a(4), a(4), a(4), np.abs(a(4))),
        ops.batch_norm,
        lambda x, w, b, mean, var: F.batch_norm(x, mean, var, w, b),
    ),
    "lp_normalize": ((X2,), lambda x: ops.lp_normalize(x, axis=1), lambda x: F.normalize(x, dim=1)),
    "local_response_norm": (
        (X2,),
        lambda x: ops.local_response_norm(x, 3, alpha=0.1, beta=0.5, bias=2.0),
        lambda x: F.local_response_norm(x, 3, alpha=0.1, beta=0.5, k=2.0),
    ),
    "log_softmax": ((X2,), lambda x: ops.log_softmax(x, axis=1), lambda x: F.log_softmax(x, dim=1)),
    "logsumexp": ((X2,), lambda x: ops.logsumexp(x, axis=(1, 2)), lambda x: torch.logsumexp(x, (1, 2))),
    "var": ((X2,), lambda x: ops.var(x, axis=(0, 1)), lambda x: torch.var(x, (0, 1))),
    "norm": ((X2,), lambda x: ops.norm(x, axis=1, p=3), lambda x: torch.linalg.vector_norm(x, 3, 1)),
    "max_with_index": ((X2,), lambda x: ops.max_with_index(x, axis=2), lambda x: tuple(torch.max(x, 2))),
    "einsum": (
        (a(2, 3, 4), a(2, 4, 5), a(5, 3)),
        lambda *x: ops.einsum("bij,bjk,ki->bk", *x),
        lambda *x: torch.einsum("bij,bjk,ki->bk", *x),
    ),
    "attention": (
        (a(2, 4, 3, 8), a(2, 4, 5, 8), a(2, 4, 5, 6)),
        lambda *x: ops.scaled_dot_product_attention(*x, is_causal=True),
        lambda *x: F.scaled_dot_product_attention(*x, is_causal=True),
    ),
    "attention_grouped": (
        (a(2, 4, 3, 8), a(2, 2, 5, 8), a(2, 2, 5, 6), a(3, 5)),
        ops.scaled_dot_product_attention,
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, enable_gqa=True),
    ),
    "chunk": ((X1,), lambda x: ops.chunk(x, 4, axis=2), lambda x: torch.chunk(x, 4, 2)),
    "remainder": ((X1, a(9)), ops.remainder, torch.remainder),
    **{
        name: ((X1,), getattr(ops, name), getattr(F, theirs))
        for name, theirs in {
            **{f: f for f in ("leaky_relu", "elu", "selu", "celu", "softplus", "softsign", "mish", "relu6", "gelu")},
            "hard_sigmoid": "hardsigmoid",
            "hard_swish": "hardswish",
            "log_sigmoid": "logsigmoid",
            "shrink": "hardshrink",
        }.items()
    },
}


@pytest.mark.parametrize("name", CASES)
def test_references_equal_torch(name: str) -> None:
    arrays, ours, theirs = CASES[name]
    want = theirs(*(torch.from_numpy(x.copy()) for x in arrays))
    wanted = want if isinstance(want, tuple) else (want,)
    for found, expected in zip(reference(ours, *arrays), wanted, strict=True):
        assert found.shape == tuple(expected.shape)
        np.testing.assert_allclose(found, expected.numpy(), rtol=2e-5, atol=2e-5)
