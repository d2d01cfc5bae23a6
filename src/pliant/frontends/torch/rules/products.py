"""Matrix products, linear layers and attention."""

from __future__ import annotations

from typing import Any

from ....dtype import bool_
from ..emit import ops
from ..registry import rule
from ..site import Site, rank, shape


@rule("aten.linear")
def linear(site: Site, input: Any, weight: Any, bias: Any = None) -> Any:
    """Imports linear: x @ weight.T + bias, without the bias if there is none; a weight of one dim gives a product of vectors."""
    if rank(weight) == 1:
        result = ops.matmul(input, weight)
        return result if bias is None else ops.add(result, bias)
    if not site.dtype().is_float:
        result = ops.matmul(input, weight, transpose_b=True)
        return result if bias is None else ops.add(result, bias)
    return ops.linear(input, weight, bias)


@rule("aten.matmul", "aten.mm", "aten.bmm", "aten.mv", "aten.dot", "aten.vdot")
def matmul(
    site: Site, self: Any, other: Any = None, mat2: Any = None, vec: Any = None, tensor: Any = None
) -> Any:  # the names of the second operand
    """Imports the matrix products matmul, mm, bmm, mv, dot and vdot, all as matmul."""
    return ops.matmul(self, next(v for v in (other, mat2, vec, tensor) if v is not None))


@rule("aten.addmm", "aten.baddbmm", "aten.addmv")
def addmm(
    site: Site, self: Any, mat1: Any = None, mat2: Any = None, beta: Any = 1, alpha: Any = 1, batch1: Any = None, batch2: Any = None,
    mat: Any = None, vec: Any = None,
) -> Any:  # fmt: skip
    """Imports addmm, baddbmm and addmv: beta * self + alpha * (a @ b); with a beta of 0 `self` does not count, even if it is NaN."""
    a = next(v for v in (mat1, batch1, mat) if v is not None)
    b = next(v for v in (mat2, batch2, vec) if v is not None)
    result = ops.matmul(a, b)
    result = result if alpha == 1 else ops.mul(result, site.cast(alpha, site.dtype()))
    if beta == 0:
        return result
    return ops.add(result, self if beta == 1 else ops.mul(self, site.cast(beta, site.dtype())))


@rule("aten.addbmm")
def addbmm(site: Site, self: Any, batch1: Any, batch2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """Imports addbmm: beta * self + alpha * the sum of a batch of products; with a beta of 0 `self` does not count."""
    of = site.dtype()
    result = ops.sum(ops.matmul(batch1, batch2), axis=[0])
    result = result if alpha == 1 else ops.mul(result, site.cast(alpha, of))
    return result if beta == 0 else ops.add(result, self if beta == 1 else ops.mul(self, site.cast(beta, of)))


@rule("aten.outer", "aten.ger")
def outer(site: Site, self: Any, vec2: Any) -> Any:
    """Imports outer: the products of all pairs of elements of two vectors, in the promoted dtype; `and` for bools."""
    of = site.dtype()
    rows, columns = ops.unsqueeze(site.cast(self, of), 1), ops.unsqueeze(site.cast(vec2, of), 0)
    return (ops.logical_and if of is bool_ else ops.mul)(rows, columns)


@rule("aten.einsum")
def einsum(site: Site, equation: str, tensors: Any, path: Any = None) -> Any:
    """Imports einsum; the path, an order of the products, is ignored."""
    return ops.einsum(*tensors, equation=equation.replace(" ", ""))


@rule("aten.scaled_dot_product_attention")
def attention(
    site: Site, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Imports attention for any number of dims before the last two; a query that sees no key gives 0, as in torch.

    Raises UnsupportedError for dropout.
    """
    if dropout_p:
        raise site.unsupported("dropout is not supported", help="call model.eval() first")
    dims = rank(query)
    if dims != 4:  # one batch dim for any number of them
        return _in_four_dims(query, key, value, attn_mask, is_causal, scale)
    mask = attn_mask
    if mask is not None and rank(mask) == 4:
        mask = _plain_mask(mask)
    return ops.scaled_dot_product_attention(query, key, value, mask, is_causal=is_causal, scale=scale)


def _plain_mask(mask: Any) -> Any:
    """Returns a mask without leading dims of 1, which broadcast; two dims stay."""
    while rank(mask) > 2 and shape(mask)[0] == 1:
        mask = ops.squeeze(mask, 0)
    return mask


def _in_four_dims(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    """Returns the attention of operands whose rank is not 4, in their rank: it adds dims, or makes one batch dim of several."""
    dims = rank(q)
    if dims < 4:
        lead = list(range(4 - dims))
        four = [ops.unsqueeze(x, lead) for x in (q, k, v)]
        result = ops.scaled_dot_product_attention(*four, mask, is_causal=causal, scale=scale)
        return ops.reshape(result, (*q.tensor.shape[:-1], v.tensor.shape[-1]))
    from ...onnx.rules.extents import total

    batch = q.tensor.shape[:-3]
    flat = [ops.reshape(x, (total(batch), *x.tensor.shape[-3:])) for x in (q, k, v)]
    if mask is not None and rank(mask) > 3:
        wanted = (*batch, *mask.tensor.shape[-3:])
        mask = ops.reshape(ops.expand(mask, wanted), (total(batch), *mask.tensor.shape[-3:]))
    result = ops.scaled_dot_product_attention(*flat, mask, is_causal=causal, scale=scale)
    return ops.reshape(result, (*q.tensor.shape[:-1], v.tensor.shape[-1]))


@rule("aten._scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    site: Site, query: Any, key: Any, value: Any, dropout_p: float = 0.0, is_causal: bool = False, attn_mask: Any = None,
    scale: float | None = None,
) -> Any:  # fmt: skip
    """Imports the attention that torch chooses on CPUs when it decomposes: a list of the result and None.

    Its second result, for gradients, is not computed. Raises UnsupportedError for dropout.
    """
    return [attention(site, query, key, value, attn_mask, dropout_p, is_causal, scale), None]


@rule("aten.cdist", "aten._cdist_forward")
def cdist(site: Site, x1: Any, x2: Any, p: float = 2.0, compute_mode: Any = None) -> Any:
    """Imports cdist: the distances between all rows of two matrices, or batches of them, in the norm of order p."""
    return ops.cdist(x1, x2, p=float(p))
