"""PyTorch modules as programs: results against eager, contracts in the user's words, pytrees, errors, files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant.support.errors import ShapeError, UnsupportedError

torch = pytest.importorskip("torch", reason="torch is not installed")
nn, F = torch.nn, torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 16)
        self.layers = nn.ModuleList([nn.LayerNorm(16), nn.Linear(16, 16)])

    def forward(self, x: Any, scale: Any = None) -> Any:
        y = self.inner(x)
        for layer in self.layers:
            y = F.gelu(layer(y))
        y = F.scaled_dot_product_attention(y, y, y)
        return {"rows": y.reshape(x.shape[0], -1), "more": [y.mean(1), y if scale is None else y * scale]}


NAMES = {"x": {0: "batch", 1: "n"}}


@pytest.fixture(scope="module")
def block() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = Block().eval()
    return model, pliant.from_torch(model, (torch.randn(2, 3, 8),), dynamic_shapes=NAMES)


@pytest.mark.parametrize("shape", [(2, 3), (1, 7), (4, 1), (1, 1)])
def test_results_are_those_of_eager_for_every_size(block: Any, shape: tuple[int, int]) -> None:
    model, program = block
    x = torch.randn(*shape, 8)
    found = pliant.compile(program)(x)
    with torch.no_grad():
        wanted = model(x)
    assert list(found) == ["rows", "more"] and isinstance(found["more"], list) and isinstance(found["rows"], torch.Tensor)
    for a, b in zip([found["rows"], *found["more"]], [wanted["rows"], *wanted["more"]], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_the_contract_has_the_names_of_the_user(block: Any) -> None:
    _, program = block
    text = str(program)
    assert 'batch = dim("batch")' in text and 'n = dim("n", min=1)' in text and "x: Tensor[f32, batch, n, 8]" in text


def test_nodes_know_their_module_and_line(block: Any) -> None:
    _, program = block
    layers = {n.origin for n in program.entry.nodes}
    assert {("inner",), ("layers.0",), ("layers.1",)} <= layers
    spans = [n.span for n in program.entry.nodes if getattr(n, "op", "") == "scaled_dot_product_attention"]
    assert spans[0] is not None and spans[0].file == __file__ and "scaled_dot_product_attention" in spans[0].text


def test_weights_are_not_copied(block: Any) -> None:
    model, program = block
    weight = model.layers[1].weight
    assert any(c.ctypes.data == weight.data_ptr() for c in program.constants if isinstance(c, np.ndarray))


def test_a_file_keeps_the_trees(block: Any, tmp_path: Path) -> None:
    model, program = block
    pliant.compile(program).save(tmp_path / "m.pliant")
    x = torch.randn(3, 2, 8)
    loaded = pliant.load(tmp_path / "m.pliant")
    with torch.no_grad():
        torch.testing.assert_close(loaded(x)["more"][0], model(x)["more"][0], rtol=1e-4, atol=1e-5)
    loaded.save(tmp_path / "again.pliant")
    assert list(pliant.load(tmp_path / "again.pliant")(x)) == ["rows", "more"]


def test_a_pt2_file_is_a_model(block: Any, tmp_path: Path) -> None:
    model, _ = block
    torch.export.save(torch.export.export(model, (torch.randn(2, 3, 8),), strict=False), tmp_path / "m.pt2")
    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        torch.testing.assert_close(pliant.compile(tmp_path / "m.pt2")(x)["rows"], model(x)["rows"], rtol=1e-4, atol=1e-5)
    (tmp_path / "bad.pt2").write_bytes(b"no archive")
    with pytest.raises(pliant.ModelFileError, match="cannot be read"):
        pliant.compile(tmp_path / "bad.pt2")


def test_inspect_shows_a_pt2_file(block: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pliant.cli import main

    path = str(tmp_path / "m.pt2")
    torch.export.save(torch.export.export(block[0], (torch.randn(2, 3, 8),), strict=False), path)
    assert main(["inspect", path]) == 0 and "x: Tensor[f32, 2, 3, 8]" in capsys.readouterr().out
    assert main(["inspect", path, "--show", "layers"]) == 0 and "layers.1" in capsys.readouterr().out


def test_an_example_is_enough() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
    x = torch.randn(2, 4)
    call = pliant.compile(model, example=(x,))
    torch.testing.assert_close(call(x), model(x).detach())
    with pytest.raises(pliant.Error, match="from an example"):
        pliant.compile(model)


def test_a_call_of_another_structure_is_refused(block: Any) -> None:
    with pytest.raises(ShapeError, match="1 positional"):
        pliant.compile(block[1])(torch.randn(2, 3, 8), torch.randn(1))


class Erfc(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.special.erfcx(torch.erfc(x))


def test_all_missing_operators_are_listed_with_their_lines() -> None:
    with pytest.raises(UnsupportedError, match="2 operators of the model are not supported") as caught:
        pliant.from_torch(Erfc(), (torch.randn(3),))
    text = str(caught.value)
    assert "aten.erfc: 1 node" in text and "aten.special_erfcx" in text and "test_torch.py" in text


class Branch(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + 1 if x.shape[0] == 1 else x * 2


def test_a_branch_on_a_size_of_one_stays_in_the_contract() -> None:
    program = pliant.from_torch(Branch(), (torch.randn(3),), dynamic_shapes={"x": {0: "n"}})
    assert 'dim("n", min=2)' in str(program)


class Unlike(nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return torch.cat([x, y]).sum(0) + x[0], (x > 2) & (y[0] < 3.5), x / 2


def test_dtypes_are_promoted_by_the_rule_of_torch() -> None:
    x, y = torch.arange(6).reshape(2, 3), torch.randn(2, 3)
    call = pliant.compile(Unlike(), example=(x, y))
    for a, b in zip(call(x, y), Unlike()(x, y), strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b)


def test_importing_pliant_does_not_import_torch() -> None:
    code = "import sys, pliant; pliant.from_torch; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Found(nn.Module):
    def forward(self, x: Any) -> Any:
        return x[x[:, 0] > 0] * 2, torch.nonzero(x > 0).sum(0)


def test_sizes_that_values_decide_are_found_at_run_time() -> None:
    x = torch.randn(6, 4)
    call = pliant.compile(Found(), example=(x,))
    for args in (x, -x, torch.zeros(6, 4)):
        for a, b in zip(call(args), Found()(args), strict=True):
            torch.testing.assert_close(a, b)
