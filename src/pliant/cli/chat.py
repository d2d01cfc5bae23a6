"""`pliant chat [PROMPT]`: answers one question, or holds a conversation.

    pliant chat "Why is the sky blue?"
    cat notes.txt | pliant chat "Summarize this."
    pliant chat -m ./model.gguf -s "You are terse."

Answers go to stdout, everything else to stderr. Without a prompt, on a terminal, it starts a conversation (cli/repl.py).
"""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
from typing import TYPE_CHECKING, Any

from . import Usage, choose, progress

if TYPE_CHECKING:
    from ..llm.lm import LLM
    from ..llm.reply import Reply, Stream

SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `pliant chat` to the parser."""
    parser.add_argument(
        "prompt", nargs="?", metavar="PROMPT", help="a question; without it, start a conversation. Text from stdin is put before it"
    )
    parser.add_argument(
        "-m", "--model", metavar="MODEL", help="a path, a name from `pliant models list`, or hf:org/repo[:quant] (default: smollm2-135m)"
    )
    parser.add_argument("-s", "--system", metavar="TEXT", help="system prompt")
    parser.add_argument(
        "--temperature", type=float, metavar="T", help="sampling temperature; 0: always the most likely token (default: 0.8)"
    )
    parser.add_argument("--top-k", type=int, metavar="N", help="sample from the N most likely tokens; 0: from all (default: 40)")
    parser.add_argument(
        "--top-p", type=float, metavar="P", help="sample from the most likely tokens that together have probability P (default: 0.95)"
    )
    parser.add_argument("--min-p", type=float, metavar="P", help="drop tokens less likely than P times the most likely one (default: 0.05)")
    parser.add_argument("--repetition-penalty", type=float, metavar="X", help="above 1: make recent tokens less likely (default: 1)")
    parser.add_argument("--seed", type=int, metavar="N", help="random seed; the same seed gives the same answer")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="end an answer after N tokens")
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end an answer before this text; may be repeated")
    parser.add_argument("--context", type=int, metavar="N", help="context length: most tokens of a conversation")
    parser.add_argument("--cache", metavar="f16 | f32", default="f16", help="data type of the KV cache (default: f16)")
    parser.add_argument("--raw", action="store_true", help="continue the text, without the model's chat template")
    parser.add_argument("--threads", type=int, metavar="N", help="number of threads")
    parser.add_argument("--offline", action="store_true", help="do not use the network")
    parser.add_argument("--stats", action="store_true", help="show the speed in tokens per second")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Runs `pliant chat`: answers the prompt, or starts a conversation; returns the exit code. Raises Usage for wrong options."""
    settings = _settings(options)
    prompt = _prompt(options.prompt)
    if prompt is None and options.json:
        raise Usage("--json needs a PROMPT, or text through stdin")
    lm = _model(options)
    if prompt is None:
        if lm.prompts.template is None:
            raise Usage(
                f"{lm.name} has no chat template, and cannot hold a conversation", 'give it a text to continue: pliant chat --raw "…"'
            )
        from .repl import talk

        return talk(lm, options.system, settings, options.stats)
    return _answer(lm, prompt, settings, options)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the generation options that were set; raises Usage for a wrong one, before the model is loaded, which may take long."""
    from ..llm.sampling import SamplingOptions
    from ..llm.stop import StopStrings
    from ..support.errors import Error

    sampling = {name: getattr(options, name) for name in SAMPLING if getattr(options, name) is not None}
    try:
        SamplingOptions(**sampling)
        StopStrings(options.stop)
    except Error as problem:
        raise Usage(problem.what) from None
    for name in ("max_tokens", "threads", "context"):
        if (number := getattr(options, name)) is not None and number < 1:
            raise Usage(f"--{name.replace('_', '-')} is {number}; at least one is needed")
    choose(options.cache, ("f16", "f32"), "kind of cache")
    if options.raw and options.system:
        raise Usage("--raw continues a text, and knows no --system")
    return {**sampling, "max_tokens": options.max_tokens, "stop": options.stop}


def _prompt(said: str | None) -> str | None:
    """Returns the text of stdin followed by the prompt; None for a conversation. Raises Usage if there is neither, and no terminal."""
    context = _piped()
    if context is None:
        if said is None and not sys.stdin.isatty():
            raise Usage("there is nothing to answer: no PROMPT, and nothing comes through stdin")
        return said
    return context if said is None else f"{context}\n\n{said}"


def _piped() -> str | None:
    """Returns the text that a pipe or a file gives through stdin; None if stdin is a terminal or missing."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # there is no stdin
        return None
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return None
    text = sys.stdin.buffer.read().decode("utf-8", "replace").strip()
    return text or None


def _model(options: argparse.Namespace) -> LLM:
    from ..llm.catalog import DEFAULT
    from ..llm.lm import LLM

    return LLM(
        options.model or DEFAULT,
        threads=options.threads,
        cache=options.cache,
        context=options.context,
        offline=options.offline,
        progress=progress,
        announce=remark,
    )


def _answer(lm: LLM, prompt: str, settings: dict[str, Any], options: argparse.Namespace) -> int:
    if options.raw:
        stream = lm.stream(prompt, raw=True, **settings)
    else:
        before = [{"role": "system", "content": options.system}] if options.system else []
        text: Any = [*before, {"role": "user", "content": prompt}] if lm.prompts.template is not None or before else prompt
        stream = lm.stream(text, **settings)
    if options.json:
        for _ in stream:
            pass
        print(json.dumps(_as_json(lm, stream.reply)))
        return 0
    show(stream, options.stats)
    return 0


def _as_json(lm: LLM, reply: Reply) -> dict[str, Any]:
    usage = {"prompt_tokens": reply.usage.prompt_tokens, "completion_tokens": reply.usage.completion_tokens}
    return {"model": lm.name, "text": reply.text, "finish_reason": reply.finish_reason, "usage": usage}


def show(stream: Stream, stats: bool = False) -> None:
    """Prints an answer as it arrives, and a remark if it ended because the context is full.

    With `stats`, also the speed in tokens per second.
    """
    import time

    start, first = time.perf_counter(), 0.0
    try:
        for piece in stream:
            first = first or time.perf_counter()
            sys.stdout.write(visible(piece) if sys.stdout.isatty() else piece)
            sys.stdout.flush()
    finally:
        stream.close()
        sys.stdout.write("\n")
        sys.stdout.flush()
    reply = stream.reply
    if reply.finish_reason == "context":
        remark("the context is full: the answer ends here")
    if stats:
        remark(_speed(reply, first - start, time.perf_counter() - first))


def _speed(reply: Reply, before: float, after: float) -> str:
    usage = reply.usage
    read, said = usage.prompt_tokens - usage.cached_tokens, usage.completion_tokens
    prompt = f"prompt: {usage.prompt_tokens} tokens, {usage.cached_tokens} of them known, {read / max(before, 1e-9):.0f} tokens/s"
    return f"{prompt}; answer: {said} tokens" + (f", {(said - 1) / after:.1f} tokens/s" if said > 1 and after > 0 else "")


def visible(text: str) -> str:
    """Removes control characters: a model's text must not control the terminal."""
    return "".join(c for c in text if c in "\n\t" or (c >= " " and not "\x7f" <= c <= "\x9f"))


def remark(text: str) -> None:
    """Prints a remark to stderr, separate from the answer."""
    progress("")
    print(f"pliant: {text}", file=sys.stderr, flush=True)
