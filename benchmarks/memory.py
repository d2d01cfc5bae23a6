"""The memory plan of MiniLM-L6 and of the decoder layer of the examples: against the largest live set, and against pools at run time.

    python benchmarks/memory.py

Nothing is timed. A pool keeps what a program gave back and hands it out again: by exact size (rounded to pages, as TVM's does), or
the smallest block that is large enough (as torch's caching allocator does). Shapes come one after the other, as a server meets them, and
the pool keeps what earlier shapes needed; a plan needs the workspace of the largest shape.
"""

from __future__ import annotations

import numpy as np

import contest  # puts this checkout and the examples where they are found
import decoder_layer
import minilm
from pliant import Tensor, dim, f32, i64
from pliant.lower.host.memory_plan import Plan, Temporary, aligned, largest_live_set, plan_memory
from pliant.pipeline import compile_as_far_as
from pliant.program import Program
from pliant.sym.expr import Var, free_vars
from pliant.sym.semantics import evaluate
from pliant.target import target

assert contest.PLACES
PAGE = 4096
LENGTHS, BATCHES = (128, 256, 512, 1024), (1, 16, 32, 64)
Shape = dict[str, int]
b = dim("b", min=1)
n = dim("n", min=1, max=max(LENGTHS))
SEQUENCES: dict[str, tuple[str, list[Shape]]] = {
    "decoder layer, lengths 128 to 1024": ("decoder", [{"t": n, "b": 1, "p": 16, "pages": 16} for n in LENGTHS]),
    "decoder layer, batches 1 to 64, one token each": ("decoder", [{"t": b, "b": b, "p": 16, "pages": 16 * b} for b in BATCHES]),
    "MiniLM, lengths 128 to 1024": ("MiniLM", [{"b": 1, "n": n} for n in LENGTHS]),
    "MiniLM, batches 1 to 64 of 128 tokens": ("MiniLM", [{"b": b, "n": 128} for b in BATCHES]),
}


def temporaries_of(model: str) -> list[Temporary]:
    """What a model needs memory for while it runs, and when."""
    program = Program.of(decoder_layer.decoder_layer.graph) if model == "decoder" else embedder()
    host = compile_as_far_as("host", program, target("native")).host
    assert host is not None
    return list(host.temporaries)


class LongTexts(minilm.MiniLM):
    """MiniLM for texts of up to 1024 tokens."""

    def forward(self, ids: Tensor[i64, b, n], mask: Tensor[i64, b, n]) -> Tensor[f32, b, minilm.WIDTH]:
        return super().forward(ids, mask)


def embedder() -> Program:
    """The model with zeros for weights, since nothing is run."""
    minilm.POSITIONS = max(LENGTHS)
    model = LongTexts()
    model.load_state_dict({name: np.zeros(p.shape, np.float32) for name, p in model.named_parameters()})
    return model.to_program()


def at(shape: Shape, temporaries: list[Temporary]) -> dict[Var, int]:
    """The dims that sizes depend on, at a shape."""
    return {v: shape[v.name] for t in temporaries for v in free_vars(t.bytes)}


def sizes_at(shape: Shape, temporaries: list[Temporary]) -> list[int]:
    """The bytes of each temporary, rounded as plans do."""
    point = at(shape, temporaries)
    return [int(evaluate(aligned(t.bytes), point)) for t in temporaries]


def pooled(temporaries: list[Temporary], shapes: list[Shape], exact: bool) -> int:
    """The bytes that a pool holds after runs of these shapes."""
    free: list[int] = []
    held = 0
    for shape in shapes:
        sizes = [-(-s // PAGE) * PAGE for s in sizes_at(shape, temporaries)]
        given: dict[int, int] = {}
        for step in range(1 + max(t.last for t in temporaries)):
            for k in [k for k, t in enumerate(temporaries) if t.first == step]:
                fitting = [s for s in free if (s == sizes[k] if exact else s >= sizes[k])]
                given[k] = min(fitting, default=sizes[k])
                if fitting:
                    free.remove(given[k])
                else:
                    held += sizes[k]
            free += [given.pop(k) for k, t in enumerate(temporaries) if t.last == step]
    return held


def planned(plan: Plan, temporaries: list[Temporary], shapes: list[Shape]) -> int:
    """The bytes of the workspace that serves all of these shapes."""
    return max(int(evaluate(plan.size, at(shape, temporaries))) for shape in shapes)


def main() -> None:
    """Prints a row for each sequence of shapes."""
    print(f"{'':48} {'plan, MiB':>10} {'of live set':>12} {'pool by size':>13} {'saved':>6} {'pool by fit':>12} {'saved':>6}")
    found = {model: temporaries_of(model) for model in ("decoder", "MiniLM")}
    plans = {model: plan_memory(temporaries) for model, temporaries in found.items()}
    for name, (model, shapes) in SEQUENCES.items():
        temporaries, plan = found[model], plans[model]
        size = planned(plan, temporaries, shapes)
        worst = max(planned(plan, temporaries, [s]) / largest_live_set(temporaries, sizes_at(s, temporaries)) for s in shapes)
        row = f"{name:48} {size / 2**20:10.2f} {worst:11.3f}x"
        for exact, width in ((True, 13), (False, 12)):
            pool = pooled(temporaries, shapes, exact)
            row += f" {pool / 2**20:{width}.2f} {1 - size / pool:6.0%}"
        print(row)


if __name__ == "__main__":
    main()
