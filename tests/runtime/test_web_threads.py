"""Programs for browsers, in node: the fused module and the plain one, one thread and several, calls that are stopped."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import pliant
from exported_models import Interpreted, Model
from node_programs import in_node, node, run_with_features
from pliant import InOut, Tensor, dim, f32, function, i64, kernel, ops
from pliant.api import program_of
from pliant.codegen.share_memory import memory_pages, with_shared_memory
from pliant.target import target

n = dim("n", max=4096)
W = np.random.default_rng(0).standard_normal((48, 64)).astype(np.float32)
RELAXED = ["--experimental-wasm-relaxed-simd"]  # what newer engines have without a flag


@function
def layer(x: Tensor[f32, n, 48]) -> Tensor[f32, n, 64]:
    return ops.softmax(ops.gelu(x @ W))


def model() -> Model:
    return Model(program_of(layer), {"x": np.random.default_rng(1).standard_normal((333, 48)).astype(np.float32)})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    node()
    folder = tmp_path_factory.mktemp("site")
    pliant.export(layer, "web", folder)
    return folder


def machine_fuses() -> bool:
    return target("native").has_fma


def test_the_fused_module_has_the_bits_of_native_code_with_fma(site: Path) -> None:
    if not machine_fuses():
        pytest.skip("this machine has no fused multiply-add")
    call = model().fresh()
    ((y,),), features = run_with_features(site, "layer", [call], flags=RELAXED)
    assert features["fused"] is True
    assert y.tobytes() == pliant.compile(layer)(call["x"]).tobytes()


@pytest.mark.parametrize("flags", [[], [*RELAXED, "--no-enable-fma3"]])
def test_the_plain_module_runs_where_nothing_fuses_and_has_the_bits_of_the_interpreter(site: Path, flags: list[str]) -> None:
    call = model().fresh()
    ((y,),), features = run_with_features(site, "layer", [call], flags=flags)
    assert features["fused"] is False
    (expected,) = Interpreted(model().program, "web").run(model().fresh())
    assert y.tobytes() == expected.tobytes()


def test_the_page_may_choose_the_plain_module(site: Path) -> None:
    assert run_with_features(site, "layer", [], flags=RELAXED, fused=False)[1]["fused"] is False


@pytest.mark.parametrize("options", [{"threads": 1}, {"threads": 2}, {"threads": 4}, {"threads": "none"}, {"threads": 3, "worker": False}])
def test_threads_do_not_change_bits(site: Path, options: dict[str, object]) -> None:
    calls = [model().fresh() for _ in range(20)]
    answers, features = run_with_features(site, "layer", calls, **options)
    (expected,) = Interpreted(model().program, "web").run(model().fresh())
    assert [y.tobytes() for (y,) in answers] == [expected.tobytes()] * 20
    assert features["threads"] == (options["threads"] if options["threads"] != "none" else 1)
    assert features["shared"] is (options["threads"] != "none") and features["worker"] is options.get("worker", True)


@kernel
def count(limit: i64, total: InOut[i64, 1]) -> None:
    for i in range(limit):
        for j in range(1000):
            total[0] = total[0] * 3 + i + j


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    node()
    folder = tmp_path_factory.mktemp("long")
    pliant.export(count, "web", folder)
    return folder


@pytest.mark.parametrize("threads", [1, 2, "none"])
def test_a_call_is_stopped_and_the_next_one_works(long: Path, threads: object) -> None:
    said = in_node(
        """
        const m = await load(url, { threads });
        const stop = new AbortController();
        const total = new BigInt64Array(1);
        let ticks = 0;
        const clock = setInterval(() => ticks++, 10);
        setTimeout(() => stop.abort(), 200);
        const start = performance.now();
        let error = null;
        try { await m.run({ limit: 1e12, total }, {}, { signal: stop.signal }); } catch (e) { error = e.name; }
        const seconds = (performance.now() - start) / 1000;
        clearInterval(clock);
        const queued = m.run({ limit: 1, total: new BigInt64Array(1) }, {}, { signal: stop.signal }).catch((e) => e.name);
        const { total: after } = await m.run({ limit: 2, total: new BigInt64Array(1) });
        say({ error, seconds, ticks, queued: await queued, after: String(after.data[0]) });
        m.close();
        """,
        url=(long / "count.json").as_uri(),
        threads=threads,
    )
    assert isinstance(said, dict)
    expected = np.zeros(1, np.int64)
    pliant.compile(count)(2, expected)
    assert said["error"] == "AbortError" and said["queued"] == "AbortError" and said["after"] == str(expected[0])
    assert said["seconds"] < 30 and said["ticks"] >= 5  # the thread of the page was free meanwhile


def test_loading_is_aborted(long: Path) -> None:
    said = in_node(
        'say(await load(url, { signal: AbortSignal.abort() }).catch((e) => e.name));', url=(long / "count.json").as_uri()
    )  # fmt: skip
    assert said == "AbortError"


def test_the_shared_module_differs_in_its_memory_only(site: Path) -> None:
    for name in ("layer", "layer.fused"):
        own, shared = (site / f"{name}.wasm").read_bytes(), (site / f"{name}.shared.wasm").read_bytes()
        assert with_shared_memory(own) == shared and b"\x03env\x06memory\x02\x03" in shared and b"__stack_pointer" in shared
        facts = json.loads((site / f"{name}.json").read_text())
        assert facts["memory_pages"] == memory_pages(own) and facts["constants_file"] == "layer.bin"
