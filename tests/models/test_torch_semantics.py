"""Where torch's meaning is easily missed: each call gives what eager gives, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pliant
from pliant.support.errors import ShapeError, UnsupportedError

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")


class Of(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A module of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def compiled(function: Callable[..., Any], *args: Any, dims: Any = None) -> Any:
    """The function compiled for these examples; `dims` has for each of them its dynamic dims."""
    return pliant.compile(pliant.from_torch(Of(function), args, dynamic_shapes=None if dims is None else {"args": dims}))


def same(f: Any, function: Callable[..., Any], *args: Any, **tolerance: float) -> None:
    torch.testing.assert_close(f(*args), function(*args), equal_nan=True, **tolerance)


@pytest.mark.parametrize("before", ["a literal", "a clamp"])
def test_a_branch_on_a_size_stays_in_the_contract(before: str) -> None:
    def branching(x: Any) -> Any:
        if x.shape[0] % 2 == 0:
            return x * 2 if before == "a literal" else x.clamp(0, 1) + x
        return x + 100

    f = compiled(branching, torch.ones(4, 3), dims=({0: "n"},))
    same(f, branching, torch.ones(6, 3))
    with pytest.raises(ShapeError):
        f(torch.ones(3, 3))


@pytest.mark.parametrize(
    "function",
    [lambda x, y: x[:, -y.shape[1] :], lambda x, y: x[:, : -y.shape[1]], lambda x, y: x[x.shape[0] - 5 :]],
    ids=["from", "to", "rows"],
)
def test_bounds_of_slices_that_are_sizes_count_from_the_end(function: Callable[..., Any]) -> None:
    x, y = torch.arange(48.0).reshape(6, 8), torch.ones(2, 3)
    f = compiled(function, x, y, dims=({0: "n", 1: "m"}, {1: "k"}))
    for rows, columns, k in ((6, 8, 3), (3, 8, 7), (9, 4, 2)):
        same(f, function, torch.rand(rows, columns), torch.ones(2, k))


def test_what_is_no_tensor_is_as_it_was_exported() -> None:
    def scaled(x: Any, factor: int, mask: Any = None) -> Any:
        return x * factor if mask is None else x * factor * mask

    f = pliant.compile(pliant.from_torch(Of(scaled), (torch.ones(2), 2), {"mask": None}))
    assert torch.equal(f(torch.ones(2), 2, mask=None), torch.full((2,), 2.0))
    for args, kwargs in (
        ((torch.ones(2), 5), {"mask": None}),
        ((torch.ones(2), 2), {"mask": torch.ones(2)}),
        ((torch.ones(2), 2), {"flag": 1}),
    ):
        with pytest.raises(ShapeError):
            f(*args, **kwargs)


def test_squeeze_of_a_dim_that_may_be_one() -> None:
    f = compiled(lambda x: x.squeeze(0), torch.ones(3, 4), dims=({0: "n"},))
    assert f(torch.ones(5, 4)).shape == (5, 4)
    with pytest.raises(ShapeError):
        f(torch.ones(1, 4))


@pytest.mark.parametrize("size", [400.0, 0.01])
def test_rms_norm_of_halves_computes_in_f32(size: float) -> None:
    norm = torch.nn.functional.rms_norm
    x = (torch.rand(3, 64) * size).half()
    same(compiled(lambda a: norm(a, (64,)), x), lambda a: norm(a, (64,)), x, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.any(x > 0.5, dim=()),
        lambda x: torch.linalg.vector_norm(x.half() * 100, ord=3),
        lambda x: torch.softmax(x.sum() * float("nan"), 0),
        lambda x: torch.var(x, dim=1, correction=2),
    ],
    ids=["no dims", "norm of halves", "softmax of nan", "correction"],
)
def test_corners_of_reductions(function: Callable[..., Any]) -> None:
    x = torch.rand(40, 50)
    same(compiled(function, x), function, x, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize(
    "function", [lambda x: torch.var(x, dim=1, correction=0.5), lambda x: x.t().as_strided((2, 2), (1, 2))], ids=["half", "strided"]
)
def test_what_is_not_supported_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedError):
        pliant.from_torch(Of(function), (torch.rand(4, 5),))


def test_weights_with_other_data_are_packed_again() -> None:
    model = torch.nn.Linear(3, 2, bias=False).eval()
    g = torch.compile(model, backend="pliant", dynamic=True)
    x = torch.rand(2, 3)
    with torch.no_grad():
        torch.testing.assert_close(g(x), model(x))
        model.weight.data = torch.rand(2, 3)
        torch.testing.assert_close(g(x), model(x))
