"""all-MiniLM-L6-v2 through pliant.nn, against transformers in float64: one compiled program, batches and lengths of all kinds.

Skipped where the weights cannot be fetched, or transformers is not installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minilm
import pliant

BATCHES = [[1], [17], [2, 5, 3], [64, 1]]


@pytest.fixture(scope="module")
def weights() -> Path:
    try:
        return minilm.weights_file()
    except RuntimeError as problem:
        pytest.skip(str(problem))


@pytest.fixture(scope="module")
def model(weights: Path) -> Any:
    return minilm.load()


def test_the_model_has_the_names_of_the_file(model: Any, weights: Path) -> None:
    reference = pytest.importorskip("safetensors.numpy").load_file(weights)
    mine = model.state_dict()
    assert {name for name in reference if name not in mine} == {
        "embeddings.position_ids",
        "pooler.dense.weight",
        "pooler.dense.bias",
    }
    for name, array in mine.items():
        assert np.array_equal(array, reference[name]), name


def test_weights_stay_mapped(model: Any) -> None:
    """The program's constants are the file's own memory."""
    found = {id_of(a) for a in model.to_program().constants if a.nbytes > 4096}
    assert found == {id_of(a) for a in model.state_dict().values() if a.nbytes > 4096}


def id_of(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def test_nodes_know_their_layer(model: Any) -> None:
    origins = {o for node in model.to_program().entry.nodes for o in node.origin}
    assert {"encoder.layer.3.attention.self.query", "encoder.layer.5.output.LayerNorm", "embeddings.word_embeddings"} <= origins


def test_outputs_against_transformers(model: Any, weights: Path) -> None:
    """The error against float64 is at most twice that of torch in float32."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536, attn_implementation="eager"
    )
    bert = transformers.BertModel(config, add_pooling_layer=False).eval()
    bert.load_state_dict(pytest.importorskip("safetensors.torch").load_file(weights), strict=False)

    def embed(ids: Any, mask: Any, dtype: Any) -> Any:
        with torch.no_grad():
            states = bert.to(dtype)(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask)).last_hidden_state
        seen = torch.from_numpy(mask).to(dtype)[:, :, None]
        mean = (states * seen).sum(1) / seen.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, dim=1).numpy().astype(np.float64)

    f = pliant.compile(model)
    for lengths in BATCHES:
        ids, mask = minilm.batch(lengths)
        exact, theirs, ours = embed(ids, mask, torch.float64), embed(ids, mask, torch.float32), f(ids, mask)
        assert np.abs(ours - exact).max() <= 2 * np.abs(theirs - exact).max(), lengths
        alone = f(ids[:1], mask[:1])
        assert np.array_equal(alone[0], ours[0]), "a text alone equals the same text in a batch"
