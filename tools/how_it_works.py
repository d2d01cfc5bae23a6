"""Writes docs/how_it_works.md: one small net on its way through every step of the compiler, with the program after each.

    python tools/how_it_works.py             # print the page
    python tools/how_it_works.py --write     # replace docs/how_it_works.md

The page is generated, and `tests/docs/test_how_it_works.py` compares it with the file, so that it cannot become untrue.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pliant import Tensor, dim, f32, function, ops
from pliant.compilation import State, Step
from pliant.loop.lowering import LOOP_PASSES, Machine
from pliant.loop.stmt import Func
from pliant.lower.callee import func_of
from pliant.pipeline import CODE, FUSE, GRAPH, LAYOUT, LOWER, run_steps
from pliant.program import Program
from pliant.target import target

PAGE = Path(__file__).resolve().parent.parent / "docs" / "how_it_works.md"
TARGET = "x86-64-v3"  # a fixed machine: the page is the same everywhere
SHOWN = 34  # lines of a scheduled kernel: its main register tile; what follows are the same loops for fewer rows

n = dim("n")
_numbers = np.random.default_rng(0)
w1 = _numbers.integers(-2, 3, (16, 8)).astype(np.float32)
b1 = np.arange(16, dtype=np.float32)
w2 = _numbers.integers(-2, 3, (4, 16)).astype(np.float32)


@function
def net(x: Tensor[f32, n, 8]) -> Tensor[f32, n, 4]:
    h = ops.relu(x @ ops.permute(w1, (1, 0)) + b1)
    return ops.softmax(h @ ops.permute(w2, (1, 0)))


HEAD = """# How it works

This page follows one net through the compiler, step by step. A tool writes it (`python tools/how_it_works.py --write`) and a test compares
it, so what it shows is what the compiler does. The steps are those of `src/pliant/pipeline.py`; `PLIANT_SHOW=all python program.py` prints
the same for a program of yours.

The net has two layers, weights as PyTorch stores them (rows are outputs), and a batch size `n` that is known only at run time:

```python
n = dim("n")

@function
def net(x: Tensor[f32, n, 8]) -> Tensor[f32, n, 4]:
    h = ops.relu(x @ ops.permute(w1, (1, 0)) + b1)
    return ops.softmax(h @ ops.permute(w2, (1, 0)))
```

`n` stays a symbol all the way down: one program serves every batch size. Lines that begin with `+` are new after a step, lines with `-` are
gone.
"""
PHASES: tuple[tuple[str, str, tuple[Step, ...]], ...] = (
    (
        "Graph",
        "The program is a graph: nodes over values whose shapes are expressions of dims. These steps are the same for all targets.",
        GRAPH,
    ),
    ("Lower", "Operators become loop programs: loops around blocks, which say what is computed and which loops are reductions.", LOWER),
    ("Fuse", "Loop programs join their producers and consumers, so that values between them need no memory.", FUSE),
    ("Layout", "From here on the target counts. Weights are packed as its kernels read them, once, when the program is loaded.", LAYOUT),
    (
        "Code",
        "Default rules schedule each loop program by primitives that check their own legality. Then memory is planned, and the host "
        "program that checks arguments and launches kernels is written: a loop program as well.",
        CODE[:-1],
    ),
)


def page() -> str:
    """The whole page."""
    program = Program.of(net.graph)
    state = State(program.entry, target(TARGET), program.constants)
    lines = [HEAD, "```python", str(state.program).strip(), "```", ""]
    for title, text, steps in PHASES:
        lines += [f"## {title}", "", text, ""]
        idle: list[str] = []
        for step in steps:
            after = run_steps(state, [step])
            if after.function is state.function and after.host is state.host:
                idle.append(step.name)
            else:
                lines += [f"### `{step.name}`", "", _sentence(step.holds), "", *_change(step, state, after), ""]
            state = after
        if idle:
            lines += [f"Nothing to do here for {_listed(idle)}.", ""]
    lines += [*_lowering(state), _END]
    return "\n".join(lines)


def _change(step: Step, before: State, after: State) -> Iterator[str]:
    """What a step has made, as far as it can be read: whole kernels after `schedule`, the host program after `host`, else a diff."""
    if step.name == "schedule":
        for func in _kernels(after):
            if func.name != "pack":
                yield from ("```python", *_cut(str(func)), "```", "")
    elif step.name == "host":
        assert after.host is not None
        yield from (
            "```python",
            str(after.host.prepare).strip(),
            "```",
            "",
            "`prepare` checks the arguments. `run` launches the kernels:",
            "",
        )
        text = str(after.host.run)
        yield from ("```python", text[text.rindex("@kernel") :].strip(), "```")
    else:
        yield from _diff(str(before.program), str(after.program))


def _diff(before: str, after: str) -> Iterator[str]:
    """The lines that differ, with two around them."""
    lines = list(difflib.unified_diff(_plain(before), _plain(after), n=2, lineterm=""))[2:]
    yield from ("```diff", *("" if line.startswith("@@") else line for line in lines), "```")


def _plain(text: str) -> list[str]:
    """The lines of a program without its imports and empty lines, which say nothing here."""
    return [line for line in text.splitlines() if line and not line.startswith(("from ", "n = dim"))]


def _cut(text: str) -> list[str]:
    """The beginning of a long kernel."""
    lines = text[text.rindex("@kernel") :].strip().splitlines()
    return (
        lines
        if len(lines) <= SHOWN
        else [*lines[:SHOWN], f"    ...  # {len(lines) - SHOWN} more lines: tiles of fewer rows for the rest of n"]
    )


def _kernels(state: State) -> list[Func]:
    """The loop programs that the function calls."""
    return list(dict.fromkeys(func_of(k.callee) for k in state.function.nodes if hasattr(k, "callee")))


def _lowering(state: State) -> Iterator[str]:
    """The passes from a scheduled kernel to what a renderer writes down, on the smallest kernel of the program."""
    func = next(f for f in _kernels(state) if f.name == "softmax")
    yield from ("### Lowering of a kernel", "")
    yield "Each kernel and the host program go through the passes of `loop/lowering.py`, until LLVM (or C) takes over. For `softmax`:"
    yield ""
    idle = []
    for step in LOOP_PASSES:
        after = step.run(func, Machine(8))
        if after is func:
            idle.append(step.name)
        else:
            yield from (f"#### `{step.name}`", "", _sentence(step.holds), "", *_diff(str(func), str(after)), "")
        func = after
    if idle:
        yield from (f"Nothing to do here for {_listed(idle)}.", "")


_END = """## Emit

While the next kernel is being scheduled, LLVM compiles those before it in the background. The last step waits for them, links everything
into one flat blob without undefined symbols, and describes its arguments. The runtime maps the blob and calls `prepare`, `size` and `run`
([design note 1](design/0001-abi.md)); it needs no compiler.
"""


def _sentence(text: str) -> str:
    return f"After it: {text}."


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page())
