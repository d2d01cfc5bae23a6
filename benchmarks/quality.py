"""How true a language model stays: logits and perplexity against a float64 evaluation of the dequantized weights, beside llama.cpp.

    python benchmarks/quality.py [--model smollm2-135m] [--peer-python ~/llama/bin/python]

Twenty prompts, every row of their logits; perplexity on the first 2,000 tokens of the file LICENSE. Each contestant computes in a process
of its own (llama.cpp in the Python that has it); the evaluation in float64 is that of tests/reference_decoder.py, for llama models: all
tokens at once, in a minute and with 5 GB. `--only logits` is ready after ten seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from contest import PLACES, ROOT

TOKENS = 2000
PROMPTS = [
    "Why is the sky blue?",
    "Write a haiku about the sea.",
    "What is the capital of France, and how many people live there?",
    "def fibonacci(n):\n    ",
    "Explain to a child how a computer adds two numbers.",
    "Translate to German: the weather is nice today.",
    "1, 1, 2, 3, 5, 8, 13,",
    "Once upon a time, in a village by a river,",
    "List three uses of copper.",
    "The derivative of x^3 + 2x is",
    "SELECT name, age FROM people WHERE",
    "How do I boil an egg?",
    "Summarize: The meeting was moved from Monday to Thursday, because the room was taken.",
    "Quelle est la différence entre un compilateur et un interpréteur ?",
    "What should I read after Moby-Dick?",
    "{'name': 'Ada', 'born': 1815, 'field':",
    "Which is heavier, a kilogram of feathers or a kilogram of iron?",
    "In 1969, the first people",
    "Roses are red,",
    "Correct the mistake: She go to school every days.",
]


def ours(path: str, rows: list[list[int]]) -> list[Any]:
    """Pliant's logits of each row of tokens."""
    import pliant

    lm = pliant.LLM(path)
    return [lm.logits(ids) for ids in rows]


def llama_cpp(path: str, rows: list[list[int]]) -> list[Any]:
    """llama.cpp's logits of each row of tokens."""
    import llama_cpp as peer

    lm = peer.Llama(path, n_ctx=max(map(len, rows)) + 1, n_batch=512, logits_all=True, verbose=False)
    found = []
    for ids in rows:
        lm.reset()
        lm.eval(ids)
        found.append(np.array(lm.scores[: len(ids)], np.float32))
    return found


CONTESTANTS = {"pliant": ours, "llama.cpp": llama_cpp}


class Float64(dict[str, Any]):
    """The tensors of a file in float64, dequantized when they are first asked for."""

    def __init__(self, tensors: Any) -> None:
        super().__init__()
        self.tensors = tensors

    def __missing__(self, name: str) -> Any:
        self[name] = self.tensors[name].dequantized().astype(np.float64)
        return self[name]

    def get(self, name: str, default: Any = None) -> Any:
        """As of a dict that has all tensors."""
        return self[name] if name in self.tensors else default


def reference(path: str, rows: list[list[int]]) -> list[Any]:
    """The logits in float64."""
    sys.path.append(str(ROOT / "tests"))
    from pliant.frontends.gguf import open_gguf
    from pliant.llm.models.parts import settings_of
    from reference_decoder import logits_of_rows
    from tiny_models import Shape

    file = open_gguf(path)
    s = settings_of(file, interleaved=True)
    shape = Shape(s.width, s.heads, s.kv_heads, s.size, s.ffn, s.layers, s.context, s.base, s.eps)
    values = Float64(file.tensors)
    return logits_of_rows(values, shape, file.architecture, rows)


def perplexity(logits: Any, ids: list[int]) -> float:
    """Of the tokens after the first."""
    best = logits.max(-1, keepdims=True)
    total = np.log(np.exp(logits - best).sum(-1)) + best[:, 0]
    chosen = logits[np.arange(len(ids) - 1), ids[1:]]
    return float(np.exp((total[:-1] - chosen).mean()))


def in_child(name: str, python: str, path: str, rows: list[list[int]]) -> list[Any] | None:
    """A contestant's logits; None where it is not installed."""
    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder) / "rows.json", Path(folder) / "logits.npz"
        given.write_text(json.dumps(rows))
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(PLACES) if name == "pliant" else ""}
        command = [python, __file__, "--contestant", name, "--model", path, "--rows", str(given), "--out", str(out)]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        if done.returncode:
            print(f"{name}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
            return None
        with np.load(out) as found:
            return [found[f"arr_{i}"].astype(np.float64) for i in range(len(rows))]


def errors(found: list[Any], exact: list[Any]) -> Any:
    """How far the logits of each prompt are from the exact ones: root mean square, in standard deviations of these."""
    return np.array([np.sqrt(((a - b) ** 2).mean()) / b.std() for a, b in zip(found, exact, strict=True)])


def logits_columns(found: list[Any], exact: list[Any]) -> str:
    """The errors of the prompts, and how often the likeliest token is the same."""
    same = np.mean([np.mean(a.argmax(-1) == b.argmax(-1)) for a, b in zip(found, exact, strict=True)])
    far = errors(found, exact)
    return f" {far.mean():12.5f} {far.max():12.5f} {same:12.2%}"


def compared(ours: Any, theirs: Any) -> str:
    """The errors of two contestants prompt by prompt, with the standard error of the difference: few prompts tell little."""
    more = ours - theirs
    spread = more.std(ddof=1) / np.sqrt(len(more))
    return f"pliant's error less the peer's: {more.mean():+.5f} ± {spread:.5f}; smaller in {(more < 0).sum()} of {len(more)} prompts"


def perplexity_columns(found: Any, exact: Any, text: list[int]) -> str:
    """The perplexity of the text, and how far it is from the exact one."""
    ours, theirs = perplexity(found, text), perplexity(exact, text)
    return f" {ours:12.4f} {ours / theirs - 1:+12.3%}"


def main() -> None:
    """Computes and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--peer-python", default=os.environ.get("PLIANT_PEER_PYTHON", sys.executable))
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of the text for the perplexity")
    parser.add_argument("--only", choices=("logits", "perplexity"), help="one half of the table")
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    parser.add_argument("--rows", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contestant:
        np.savez(options.out, *CONTESTANTS[options.contestant](options.model, json.loads(Path(options.rows).read_text())))
        return
    from pliant.frontends.gguf import open_gguf
    from pliant.llm.locate import locate
    from pliant.llm.tokenizer import from_gguf

    path = str(locate(options.model))
    tokenizer = from_gguf(open_gguf(path))
    text = tokenizer.encode((ROOT / "LICENSE").read_text())[: options.tokens]
    prompts = [] if options.only == "perplexity" else [tokenizer.encode(p) for p in PROMPTS]
    rows = [*prompts, *([] if options.only == "logits" else [text])]
    exact = reference(path, rows)
    heads = ["mean error", "worst error", "same choice"] * bool(prompts) + ["perplexity", "of float64"] * (len(rows) > len(prompts))
    print(" " * 12 + "".join(f" {head:>12}" for head in heads), flush=True)
    far = []
    for name, python in (("pliant", sys.executable), ("llama.cpp", options.peer_python)):
        found = in_child(name, python, path, rows)
        if found is None:
            continue
        line = logits_columns(found[: len(prompts)], exact[: len(prompts)]) if prompts else ""
        line += perplexity_columns(found[-1], exact[-1], text) if len(rows) > len(prompts) else ""
        print(f"{name:12}{line}", flush=True)
        far.append(errors(found[: len(prompts)], exact[: len(prompts)]))
    if prompts and len(far) == 2:
        print(compared(*far))


if __name__ == "__main__":
    main()
