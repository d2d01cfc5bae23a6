"""`torch.compile(model, backend="pliant")`: one program for all sizes, and eager wherever a program cannot serve."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
nn, F = torch.nn, torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    before = torch.fx.experimental._config.backed_size_oblivious
    torch._dynamo.reset()
    torch._logging.warning_once.cache_clear()
    yield
    torch._dynamo.reset()
    torch.fx.experimental._config.backed_size_oblivious = before


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the programs that were compiled."""
    from pliant import torch_backend

    found: list[str] = []
    compile_source = torch_backend.compile_source

    def counted(program: Any, **options: Any) -> Any:
        found.append(program.entry.name)
        return compile_source(program, **options)

    monkeypatch.setattr(torch_backend, "compile_source", counted)
    torch.fx.experimental._config.backed_size_oblivious = True
    return found


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 24)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.count += 1
        q, k, v = self.inner(x).view(x.shape[0], x.shape[1], 3, 2, 4).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape[0], x.shape[1], 8) + self.count


def test_one_program_serves_all_sizes(calls: list[str]) -> None:
    torch.manual_seed(0)
    model = Attention().eval()
    compiled = torch.compile(model, backend="pliant", dynamic=True)
    with torch.no_grad():
        for shape in [(2, 5), (3, 7), (1, 7), (5, 2), (2, 1)]:
            x = torch.randn(*shape, 8)
            found, after = compiled(x), model.count.clone()
            model.count -= 1
            torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-5)
            assert model.count == after, "the buffer is written once"
    assert len(calls) == 1


def test_written_weights_are_packed_again(calls: list[str]) -> None:
    model = nn.Linear(4, 3)
    compiled = torch.compile(model, backend="pliant", dynamic=True)
    x = torch.randn(2, 4)
    with torch.no_grad():
        compiled(x)
        compiled(x)
        assert len(calls) == 1
        model.weight.add_(1)
        torch.testing.assert_close(compiled(x), F.linear(x, model.weight, model.bias))
    assert len(calls) == 2


def test_operators_without_a_rule_run_in_eager_and_it_is_said_once(calls: list[str], caplog: pytest.LogCaptureFixture) -> None:
    def f(x: Any) -> Any:
        return torch.special.erfcx(x.relu() + 1) * 2 + x

    x = torch.randn(3, 4)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "torch.pliant"):
        torch.testing.assert_close(torch.compile(f, backend="pliant", dynamic=True)(x), f(x))
    assert calls, "the parts around it are compiled"
    assert [r.message for r in caplog.records if "aten.special_erfcx" in r.message] == [
        "pliant: these operators run in eager: aten.special_erfcx"
    ]


def test_with_gradients_a_model_runs_in_eager(calls: list[str]) -> None:
    model = nn.Linear(4, 3)
    x = torch.randn(2, 4)
    y = torch.compile(model, backend="pliant", dynamic=True)(x)
    y.sum().backward()
    assert model.weight.grad is not None and not calls


def test_a_call_outside_of_the_contract_runs_in_eager(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from pliant import torch_backend

    def refuses(program: Any, **options: Any) -> Any:
        def call(*args: Any) -> Any:
            raise RuntimeError("the contract does not hold")

        return call

    monkeypatch.setattr(torch_backend, "compile_source", refuses)
    x = torch.randn(3)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(lambda v: v.relu() + 1, backend="pliant", dynamic=True)(x), x.relu() + 1)


def test_options_are_checked() -> None:
    with pytest.raises(Exception, match="unknown options of the backend pliant: speed"):
        torch.compile(lambda v: v + 1, backend="pliant", options={"speed": 1})(torch.randn(2))
