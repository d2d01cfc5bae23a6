"""TreeEnsemble: random trees as programs, against the standard's own evaluator; tables that are no trees are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from pliant.support.errors import ModelFileError

onnx = pytest.importorskip("onnx", reason="models are made with the package onnx")
if onnx.defs.onnx_opset_version() < 22:
    pytest.skip("the operator is newer than the package onnx", allow_module_level=True)
FEATURES, TARGETS = 3, 2


def tensor(values: Any, kind: Any) -> Any:
    return onnx.numpy_helper.from_array(np.asarray(values, kind))


def random_trees(rng: np.random.Generator, roots: int) -> dict[str, Any]:
    """The attributes of full trees of two levels, all modes but membership, and one node with a set."""
    found: dict[str, list[Any]] = {n: [] for n in ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")}
    modes, splits, starts, leaves = [], [], [], 0
    for _ in range(roots):
        first = len(modes)
        starts.append(first)
        for level, (yes, no) in enumerate([(first + 1, first + 2), (leaves, leaves + 1), (leaves + 2, leaves + 3)]):
            found["featureids"].append(int(rng.integers(FEATURES)))
            found["truenodeids"].append(yes)
            found["falsenodeids"].append(no)
            found["trueleafs"].append(int(level > 0))
            found["falseleafs"].append(int(level > 0))
            modes.append(int(rng.integers(6)))
            splits.append(float(rng.integers(-2, 3)))
        leaves += 4
    modes[1] = 6
    return {
        **{f"nodes_{n}": v for n, v in found.items()}, "nodes_modes": tensor(modes, np.uint8), "nodes_splits": tensor(splits, np.float32),
        "nodes_missing_value_tracks_true": rng.integers(0, 2, len(modes)).tolist(), "tree_roots": starts, "n_targets": TARGETS,
        "leaf_weights": tensor(rng.standard_normal(leaves), np.float32), "leaf_targetids": rng.integers(0, TARGETS, leaves).tolist(),
        "membership_values": tensor([1, -2, np.nan], np.float32),
    }  # fmt: skip


def model(attributes: dict[str, Any]) -> Any:
    node = onnx.helper.make_node("TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", **attributes)
    infos = [onnx.helper.make_tensor_value_info(n, 1, s) for n, s in (("x", ["n", FEATURES]), ("y", ["n", TARGETS]))]
    graph = onnx.helper.make_graph([node], "g", infos[:1], infos[1:])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("ai.onnx.ml", 5), onnx.helper.make_opsetid("", 21)])


@pytest.mark.parametrize("how", range(4), ids=["average", "sum", "min", "max"])
def test_random_trees(how: int) -> None:
    from onnx.reference import ReferenceEvaluator

    rng = np.random.default_rng(how)
    proto = model({**random_trees(rng, 5), "aggregate_function": how})
    compiled = pliant.compile(pliant.from_onnx(proto))
    for rows in (1, 7):
        x = rng.integers(-2, 3, (rows, FEATURES)).astype(np.float32)
        x[0, 1] = np.nan
        np.testing.assert_allclose(compiled(x), ReferenceEvaluator(proto).run(None, {"x": x})[0], rtol=1e-6)


@pytest.mark.parametrize("name, value, what", [
    ("nodes_truenodeids", [0, 0, 1], "deeper than"),
    ("nodes_truenodeids", [9, 0, 1], "leads to no node"),
    ("nodes_featureids", [0, 0, 7], "none of 3 features"),
    ("nodes_trueleafs", [0, 1], "different lengths"),
    ("tree_roots", [3], "is no node"),
    ("leaf_targetids", [0, 1, 5, 0], "a target that there is not"),
    ("membership_values", tensor([1, 2], np.float32), "0 sets for 1 nodes"),
])  # fmt: skip
def test_what_is_no_tree(name: str, value: Any, what: str) -> None:
    with pytest.raises(ModelFileError, match=what):
        pliant.from_onnx(model({**random_trees(np.random.default_rng(0), 1), name: value}))
