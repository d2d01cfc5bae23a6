"""What `pliant.js` does when something fails: held state of wrong dims, closed programs, workers that die, traps."""

from __future__ import annotations

from pathlib import Path

import pytest

import pliant
from node_programs import in_node, node
from pliant import InOut, Tensor, dim, i64, kernel

n = dim("n", min=2, max=6)
WEB = Path(pliant.__file__).parent / "codegen" / "web"


@kernel
def count(limit: i64, total: InOut[i64, n]) -> None:
    for i in range(limit):
        for j in range(1000):
            total[0] = total[0] * 3 + i + j


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    node()
    folder = tmp_path_factory.mktemp("failures")
    pliant.export(count, "web", folder)
    return (folder / "count.json").as_uri()


def test_held_state_has_the_dims_of_its_argument(url: str) -> None:
    said = in_node(
        """
        const m = await load(url, { threads: 1 });
        const refused = [];
        for (const dims of ["q", 1.5, ["q"], [1.5], [2, 2], [-1], [1], [7], undefined]) refused.push(await m.hold("total", dims).then(() => "held", (e) => e.name));
        await m.hold("total", [3]);
        refused.push(await m.hold("total", [3]).then(() => "held", (e) => e.name));
        say([refused, await m.run({ limit: 1 })]);
        m.close();
        """,
        url=url,
    )
    assert said == [["PliantError"] * 10, {}]


@pytest.mark.parametrize("threads", [1, "none"])
def test_calls_of_a_closed_program_end(url: str, threads: object) -> None:
    said = in_node(
        """
        const m = await load(url, { threads });
        const long = () => m.run({ limit: 1e12, total: new BigInt64Array(2) }).catch((e) => e.message);
        const waiting = [long(), long()];
        setTimeout(() => m.close(), 100);
        say([...(await Promise.all(waiting)), await long()]);
        """,
        url=url,
        threads=threads,
    )
    assert said == ["the program was closed"] * 3


def test_closing_stops_a_restart(url: str) -> None:
    said = in_node(
        """
        const m = await load(url, { threads: "none" });
        const stop = new AbortController();
        const call = (signal) => m.run({ limit: 1e12, total: new BigInt64Array(2) }, {}, { signal }).catch((e) => e.name);
        const calls = [call(stop.signal), call()];
        setTimeout(() => { stop.abort(); m.close(); }, 100);
        say(await Promise.all(calls));
        """,
        url=url,
    )
    assert isinstance(said, list) and said[1] == "Error"


def test_a_trap_ends_a_program() -> None:
    said = in_node(
        """
        const { Engine } = await import(web);
        let calls = 0;
        const trap = () => { calls++; throw new WebAssembly.RuntimeError("unreachable"); };
        const memory = new WebAssembly.Memory({ initial: 2 });
        const exports = { __heap_base: { value: 1024 }, table: { grow: () => 0, set: () => {} }, prepare: trap, run: trap };
        const facts = { name: "p", arguments: [], outputs: [], constants: [], constants_bytes: 0, checks: [], dims: { total: 1 },
          entries: { prepare: "prepare", run: "run", serial_for: "s" } };
        const engine = new Engine(facts, exports, memory, false);
        const errors = [];
        for (let n = 0; n < 2; n++) try { engine.run({}); } catch (e) { errors.push(`${e.name}: ${e.message}`); }
        say([calls, errors]);
        """,
        web=(WEB / "engine.js").as_uri(),
    )
    assert said == [1, ["PliantError: `p` has trapped: unreachable\nhelp: load the program again"] * 2]
