"""pliant.nn: names and meaning as torch has them, `forward` as a graph function, mistakes at the user's line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Tensor, bool_, dim, f32, i64, kernel, nn, ops
from pliant.interp.graph import run_graph
from pliant.sym.spec import Out

n, m = dim("n", max=4096), dim("m", max=64)
rng = np.random.default_rng(5)


def run(module: nn.Module, *args: Any) -> list[np.ndarray[Any, Any]]:
    """What the module computes, by the interpreter."""
    return [np.asarray(r) for r in run_graph(module.to_program().entry, list(args))]


def filled(module: nn.Module) -> Any:
    """The module with random data."""
    for _, p in module._every_parameter():
        p.set(rng.standard_normal(p.shape).astype(p.dtype.numpy()) ** (2 if isinstance(p, nn.Buffer) else 1))
    return module


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return rng.standard_normal(shape).astype(np.float32)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4, bias=False)

    def forward(self, x: Tensor[f32, n, 4]) -> Tensor[f32, n, 4]:
        return self.down(ops.gelu(self.up(x)))


# What a module consists of.


def test_names() -> None:
    model = Mlp()
    assert [name for name, _ in model.named_parameters()] == ["up.weight", "up.bias", "down.weight"]
    assert [name for name, _ in model.named_modules()] == ["", "up", "down"]
    assert repr(model) == "Mlp(\n  (up): Linear(4, 8)\n  (down): Linear(8, 4)\n)"
    assert model.state_dict() == {}, "no data yet"


def test_shared_parameters_have_every_name_in_the_state() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
            self.second.weight = self.first._children()["weight"]

    model = filled(Tied())
    assert [name for name, _ in model.named_parameters()] == ["first.weight", "first.bias", "second.bias"]
    assert model.state_dict()["second.weight"] is model.state_dict()["first.weight"]


def test_attributes_may_change_their_kind() -> None:
    model = Mlp()
    model.down = nn.Linear(8, 2)
    assert model.down.out_features == 2
    del model.down
    with pytest.raises(AttributeError, match="`Mlp` has no attribute `down`"):
        _ = model.down
    model.up.bias = None
    assert [name for name, _ in model.named_parameters()] == ["up.weight"]


def test_state_of_torch_is_taken_as_it_is() -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.GELU(), torch.nn.LayerNorm(6), torch.nn.BatchNorm1d(6), torch.nn.MultiheadAttention(6, 2)
    )
    ours = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.LayerNorm(6), nn.BatchNorm1d(6), nn.MultiheadAttention(6, 2))
    state = {k: v.numpy() for k, v in theirs.state_dict().items() if not k.endswith("num_batches_tracked")}
    ours.load_state_dict(state)
    assert list(ours.state_dict()) == list(state)
    assert [k for k, _ in ours.named_parameters()] == [k for k, _ in theirs.named_parameters()]


# Layers against torch.


def compare(ours: Any, theirs: Any, x: np.ndarray[Any, Any], spec: Any) -> None:
    torch = pytest.importorskip("torch")
    filled(ours).inputs = {"x": spec}
    theirs.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in ours.state_dict().items()}, strict=False)
    with torch.no_grad():
        expected = theirs.eval()(torch.from_numpy(x)).numpy()
    assert np.allclose(run(ours, x)[0], expected, atol=2e-5)


def test_linear() -> None:
    torch = pytest.importorskip("torch")
    compare(nn.Linear(4, 3), torch.nn.Linear(4, 3), normal(2, 5, 4), Tensor[f32, m, n, 4])


def test_layer_norm() -> None:
    torch = pytest.importorskip("torch")
    compare(nn.LayerNorm(8), torch.nn.LayerNorm(8), normal(3, 8), Tensor[f32, n, 8])
    compare(nn.LayerNorm((3, 8), bias=False), torch.nn.LayerNorm((3, 8), bias=False), normal(2, 3, 8), Tensor[f32, n, 3, 8])


def test_rms_norm() -> None:
    torch = pytest.importorskip("torch")
    compare(nn.RMSNorm(8), torch.nn.RMSNorm(8, eps=1e-6), normal(3, 8), Tensor[f32, n, 8])


def test_group_norm() -> None:
    torch = pytest.importorskip("torch")
    compare(nn.GroupNorm(2, 6), torch.nn.GroupNorm(2, 6), normal(3, 6, 4), Tensor[f32, n, 6, m])


def test_batch_norm() -> None:
    torch = pytest.importorskip("torch")
    compare(nn.BatchNorm2d(3), torch.nn.BatchNorm2d(3), normal(2, 3, 4, 5), Tensor[f32, n, 3, m, 5])


@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1, "bias": False}, {"groups": 2, "dilation": 2, "padding": "same"}])
def test_convolutions(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    compare(nn.Conv1d(4, 6, 3, **options), torch.nn.Conv1d(4, 6, 3, **options), normal(2, 4, 9), Tensor[f32, n, 4, m])
    compare(nn.Conv2d(4, 6, (3, 2), **options), torch.nn.Conv2d(4, 6, (3, 2), **options), normal(2, 4, 7, 8), Tensor[f32, n, 4, m, 8])


@pytest.mark.parametrize("name", ["ReLU", "GELU", "SiLU", "Sigmoid", "Tanh", "Identity", "Dropout"])
def test_activations(name: str) -> None:
    torch = pytest.importorskip("torch")
    compare(getattr(nn, name)(), getattr(torch.nn, name)(), normal(3, 4), Tensor[f32, n, 4])


def test_embedding() -> None:
    table = filled(nn.Embedding(7, 3))
    table.inputs = {"ids": Tensor[i64, n, 2]}
    ids = np.array([[0, 6], [3, 3]])
    assert np.array_equal(run(table, ids)[0], table.state_dict()["weight"][ids])


def test_multihead_attention_with_masks() -> None:
    torch = pytest.importorskip("torch")

    class Attend(nn.Module):
        def __init__(self) -> None:
            self.attention = nn.MultiheadAttention(8, 2)

        def forward(self, x: Tensor[f32, n, m, 8], seen: Tensor[bool_, m, m]) -> Any:
            return self.attention(x, x, x, seen)

    ours, theirs = filled(Attend()), torch.nn.MultiheadAttention(8, 2, batch_first=True)
    theirs.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in ours.attention.state_dict().items()})
    x, seen = normal(2, 5, 8), np.tril(np.ones((5, 5), bool))
    with torch.no_grad():
        given = torch.from_numpy(x)
        expected = theirs.eval()(given, given, given, attn_mask=torch.from_numpy(~seen), need_weights=False)[0].numpy()
    assert np.allclose(run(ours, x, seen)[0], expected, atol=1e-5)


# Values inside of forward.


class Apply(nn.Module):
    """A module of one function."""

    def __init__(self, fn: Any, spec: Any) -> None:
        self.fn, self.inputs = fn, {"x": spec}

    def forward(self, x: Any) -> Any:
        return self.fn(x)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: 1.0 - x / 2.0 + 3.0 * x,
        lambda x: -(abs(x) ** 2.0),
        lambda x: x[1],
        lambda x: x[:, -1],
        lambda x: x[..., 0],
        lambda x: x[1:3, ::2],
        lambda x: x[:, None, 1:],
        lambda x: x[None, ..., -2],
        lambda x: x[np.array([2, 0, 0])],
        lambda x: x[:, np.array([[0, 3], [1, 1]])],
        lambda x: np.arange(4, dtype=np.float32) * x,
        lambda x: x < 0.5,
        lambda x: x >= 0.5,
    ],
)
def test_operators_mean_what_they_mean_in_numpy(fn: Any) -> None:
    x = normal(3, 4)
    found = run(Apply(fn, Tensor[f32, n, 4]), x)[0]
    assert found.shape == fn(x).shape and np.allclose(found, fn(x), atol=1e-6)


def test_products() -> None:
    x = normal(3, 4)
    assert np.allclose(run(Apply(lambda x: x @ normal_weight, Tensor[f32, n, 4]), x)[0], x @ normal_weight, atol=1e-5)


normal_weight = normal(4, 2)


def test_shapes_are_known() -> None:
    def check(x: Any) -> Any:
        assert x.shape[1] == 4 and x.ndim == 2 and str(x.dtype) == "f32"
        return ops.reshape(x, (x.shape[0] * 2, x.shape[1] // 2))

    assert run(Apply(check, Tensor[f32, n, 4]), normal(3, 4))[0].shape == (6, 2)


def test_kernels_and_functions_are_called_inside() -> None:
    @kernel
    def double(x: Tensor[f32, n, 4], y: Out[f32, n, 4]) -> None:
        for i in range(n):
            for j in range(4):
                y[i, j] = x[i, j] * 2.0

    @pliant.function
    def more(x: Tensor[f32, n, 4]) -> Tensor[f32, n, 4]:
        return x + 1.0

    x = normal(3, 4)
    assert np.array_equal(run(Apply(lambda x: more(double(x)), Tensor[f32, n, 4]), x)[0], x * 2 + 1)


# From a module to a program.


def test_compiles() -> None:
    model = filled(Mlp())
    f = pliant.compile(model, dims={"n": (1, 100)})
    x = normal(5, 4)
    assert str(f.contract).count("n in 1..100") and np.allclose(f(x), run(model, x)[0], atol=1e-5)
    program = model.to_program()
    assert str(pliant.parse(str(program), constants=program.named_constants)) == str(program)


def test_results_have_names() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor[f32, n]) -> Any:
            neg = -x
            return {"neg": ops.exp(neg), "plain": neg}

    assert pliant.compile(Two()).run({"x": np.zeros(2, np.float32)}).keys() == {"neg", "plain"}
    assert [r.tolist() for r in run(Two(), np.zeros(1, np.float32))] == [[1], [0]]


def test_defaults_stay() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor[f32, n], by: float = 3.0) -> Any:
            return x * by

    assert run(Scaled(), np.ones(2, np.float32))[0].tolist() == [3, 3]


def test_dims_of_a_function_around_the_class() -> None:
    k = dim("k", max=9)

    class Inner(nn.Module):
        def forward(self, x: Tensor[f32, k]) -> Tensor[f32, k]:
            return x

    assert [str(p.annotation) for p in Inner().to_program().entry.params] == ["Tensor[f32, k]"]


def test_a_promise_is_checked() -> None:
    class Promise(nn.Module):
        def forward(self, x: Tensor[f32, n], y: Tensor[f32, m]) -> Tensor[f32, n]:
            return x[: y.shape[0]]

    f = pliant.compile(Promise())
    assert f(np.ones(3, np.float32), np.ones(3, np.float32)).shape == (3,)
    with pytest.raises(pliant.Error, match="the result is promised as"):
        f(np.ones(3, np.float32), np.ones(2, np.float32))


def test_data_is_converted_to_the_declared_type() -> None:
    weight = np.ones((3, 4), np.float64)
    assert nn.Linear(4, 3, bias=False).load_state_dict({"weight": weight}).state_dict()["weight"].dtype == np.float32
    kept = nn.Linear(4, 3, bias=False, dtype="f64").load_state_dict({"weight": weight})
    assert np.shares_memory(kept.state_dict()["weight"], weight)
    assert kept.to("f32").state_dict()["weight"].dtype == np.float32


# Mistakes.


def mistake(make: Any) -> str:
    with pytest.raises(pliant.Error) as caught:
        make()
    return str(caught.value)


def test_a_parameter_without_data() -> None:
    text = mistake(lambda: pliant.compile(Mlp()))
    assert "parameter `up.weight` has no data" in text and "load_state_dict" in text


def test_a_state_of_another_module() -> None:
    state = filled(Mlp()).state_dict()
    state["down.wait"] = state.pop("down.weight")
    text = mistake(lambda: Mlp().load_state_dict(state))
    assert "1 name missing: down.weight" in text and "not of this module: down.wait" in text and "did you mean `down.wait`" in text
    assert len(Mlp().load_state_dict(state, strict=False).state_dict()) == 2


def test_a_wrong_shape() -> None:
    text = mistake(lambda: nn.Linear(4, 8).load_state_dict({"weight": np.ones((4, 8)), "bias": np.ones(8)}))
    assert "parameter `weight` has the shape (8, 4), the array has (4, 8)" in text


def test_a_call_outside() -> None:
    text = mistake(lambda: Mlp()(np.ones((2, 4), np.float32)))
    assert "outside of a forward" in text and "pliant.compile" in text and "test_nn.py" in text


def test_no_annotation() -> None:
    class Plain(nn.Module):
        def forward(self, x):  # type: ignore[no-untyped-def]
            return x

    text = mistake(lambda: Plain().to_program())
    assert "parameter `x` of `Plain.forward` has no annotation" in text and "def forward(self, x):" in text


def test_a_choice_by_a_tensor() -> None:
    def choose(x: Any) -> Any:
        return x if x[0] > 0.0 else -x

    text = mistake(lambda: Apply(choose, Tensor[f32, n]).to_program())
    assert "is not known while `forward` is read" in text and "return x if x[0] > 0.0 else -x" in text and "ops.where" in text


def test_shapes_that_do_not_fit_are_at_the_users_line() -> None:
    def wrong(x: Any) -> Any:
        return x @ np.ones((5, 2), np.float32)

    text = mistake(lambda: Apply(wrong, Tensor[f32, n, 4]).to_program())
    assert "matmul: 4 columns of `x` meet 5 rows" in text and "return x @ np.ones((5, 2), np.float32)" in text


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda x: 3, "returns an object of type `int`"),
        (lambda x: {"a b": x}, "named like a Python variable"),
        (lambda x: x[0, 0, 0], "3 indices for `x`, which has 2 dims"),
        (lambda x: x["a"], "cannot be indexed by an object of type `str`"),
        (lambda x: [*x], "not iterable"),
    ],
)
def test_other_mistakes(fn: Any, expected: str) -> None:
    with pytest.raises((pliant.Error, TypeError), match=expected):
        Apply(fn, Tensor[f32, n, 4]).to_program()


def test_inputs_that_forward_does_not_take() -> None:
    model = Apply(lambda x: x, Tensor[f32, n])
    model.inputs = {"x": Tensor[f32, n], "z": Tensor[f32, n]}
    assert "`inputs` names `z`" in mistake(model.to_program)
