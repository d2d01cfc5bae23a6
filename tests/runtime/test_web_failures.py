"""What `pliant.js` does when something fails: held state of wrong dims, closed programs, workers that die, traps."""

from __future__ import annotations

from pathlib import Path

import pytest

import pliant
from node_programs import in_node, node
from pliant import InOut, dim, i64, kernel

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
        const hold = async (dims) => refused.push(await m.hold("total", dims).then(() => "held", (e) => e.name));
        for (const dims of ["q", 1.5, ["q"], [1.5], [2, 2], [-1], [1], [7], undefined]) await hold(dims);
        await m.hold("total", [3]);
        await hold([3]);
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


def test_calls_after_the_worker_died_end(url: str) -> None:
    said = in_node(
        """
        const { Worker } = await import("node:worker_threads");
        const post = Worker.prototype.postMessage, workers = new Set();
        Worker.prototype.postMessage = function (...all) { workers.add(this); return post.apply(this, all); };
        const m = await load(url, { threads: 1 });
        const call = () => m.run({ limit: 1e12, total: new BigInt64Array(2) }).catch((e) => e.message);
        const calls = [call(), call()];
        setTimeout(() => workers.forEach((w) => w.emit("error", new Error("died"))), 100);
        say([...(await Promise.all(calls)), await call()]);
        m.close();
        """,
        url=url,
    )
    assert said == ["died"] * 3


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


@pytest.mark.parametrize(("status", "asked"), [(503, [0, 4, 4]), (429, [0, 4, 4]), (404, [0, 4])])
def test_a_busy_server_is_asked_again(status: int, asked: list[int]) -> None:
    said = in_node(
        """
        const { readBlocks } = await import(files);
        const { sha256 } = await import(files.replace("files.js", "sha256.js"));
        const all = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8), asked = [], found = [];
        globalThis.fetch = async (_, { headers }) => {
          const start = Number((headers.Range ?? "bytes=0-").slice(6, -1));
          asked.push(start);
          if (asked.length === 2) return new Response("busy", { status });
          const body = new ReadableStream({ pull(c) {
            if (this.sent) return c.error(new Error("broken"));
            this.sent = true;
            c.enqueue(all.slice(start, start + 4));
          } });
          return new Response(body, { status: start ? 206 : 200 });
        };
        const blocks = { bytes: 4, sha256: [await sha256(all.slice(0, 4)), await sha256(all.slice(4))] };
        const end = await readBlocks(new URL("http://x/w.bin"), 8, blocks, (at, b) => found.push(...b)).then(() => "read", (e) => e.name);
        say([asked, found, end]);
        """,
        files=(WEB / "files.js").as_uri(),
        status=status,
    )
    assert said == [asked, list(range(1, 9 if len(asked) == 3 else 5)), "read" if len(asked) == 3 else "PliantError"]


def test_options_of_sampling_have_ranges() -> None:
    said = in_node(
        """
        const { Sampler } = await import(web);
        say(cases.map((options) => { try { new Sampler(options); return "taken"; } catch (e) { return `${e.name}: ${e.message}`; } }));
        """,
        web=(WEB / "sampling.js").as_uri(),
        cases=[
            {"top_p": 1.5},
            {"min_p": 2},
            {"repetition_penalty": 0},
            {"repetition_penalty": 101},
            {"top_p": 1, "min_p": 0, "repetition_penalty": 1.1},
        ],
    )
    assert said == [
        "PliantError: `top_p` is 1.5; it is a number from 0 to 1", "PliantError: `min_p` is 2; it is a number from 0 to 1",
        "PliantError: `repetition_penalty` is 0; it is a number from 0.01 to 100",
        "PliantError: `repetition_penalty` is 101; it is a number from 0.01 to 100", "taken",
    ]  # fmt: skip
