"""`pliant chat [PROMPT]`: one question, or a conversation.

    pliant chat "Why is the sky blue?"
    cat notes.txt | pliant chat "Summarize this."
    pliant chat -m ./model.gguf -s "You are terse."

Answers go to stdout, everything else to stderr. Without a prompt and with a terminal it is a conversation (cli/repl.py).
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
    """The command line."""
    parser.add_argument(
        "prompt", nargs="?", metavar="PROMPT", help="a question; without one, a conversation. What comes through stdin stands before it"
    )
    parser.add_argument(
        "-m", "--model", metavar="MODEL", help="a path, a name of `pliant models list`, or hf:org/repo[:quant]; else smollm2-135m"
    )
    parser.add_argument("-s", "--system", metavar="TEXT", help="what the model is told before the conversation")
    parser.add_argument("--temperature", type=float, metavar="T", help="0 takes the most likely words (else 0.8)")
    parser.add_argument("--top-k", type=int, metavar="N", help="choose among the N most likely tokens; 0: among all (else 40)")
    parser.add_argument("--top-p", type=float, metavar="P", help="choose among the tokens that together have this probability (else 0.95)")
    parser.add_argument(
        "--min-p", type=float, metavar="P", help="leave out tokens below this share of the most likely one's probability (else 0.05)"
    )
    parser.add_argument("--repetition-penalty", type=float, metavar="X", help="above 1: say the same less often (else 1)")
    parser.add_argument("--seed", type=int, metavar="N", help="the same seed gives the same answer")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="end an answer after N tokens")
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end an answer before this text; may be repeated")
    parser.add_argument("--context", type=int, metavar="N", help="tokens that a conversation may have")
    parser.add_argument("--cache", metavar="f16 | f32", default="f16", help="how keys and values are kept")
    parser.add_argument("--raw", action="store_true", help="continue the text, without the model's chat template")
    parser.add_argument("--threads", type=int, metavar="N", help="processors to use")
    parser.add_argument("--offline", action="store_true", help="do not use the network")
    parser.add_argument("--stats", action="store_true", help="say how fast it was")
    parser.add_argument("--json", action="store_true", help="the answer as JSON")


def run(options: argparse.Namespace) -> int:
    """Answers a question, or talks."""
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
    """The options of a generation, those that were given; checked before a model is loaded."""
    from ..llm.sampling import SamplingOptions
    from ..llm.stop import StopStrings
    from ..support.errors import Error

    given = {name: getattr(options, name) for name in SAMPLING if getattr(options, name) is not None}
    try:
        SamplingOptions(**given)
        StopStrings(options.stop)
    except Error as problem:
        raise Usage(problem.what) from None
    for name in ("max_tokens", "threads", "context"):
        if (number := getattr(options, name)) is not None and number < 1:
            raise Usage(f"--{name.replace('_', '-')} is {number}; at least one is needed")
    choose(options.cache, ("f16", "f32"), "kind of cache")
    if options.raw and options.system:
        raise Usage("--raw continues a text, and knows no --system")
    return {**given, "max_tokens": options.max_tokens, "stop": options.stop}


def _prompt(said: str | None) -> str | None:
    """What is asked: the text of stdin and the prompt; None for a conversation."""
    context = _piped()
    if context is None:
        if said is None and not sys.stdin.isatty():
            raise Usage("there is nothing to answer: no PROMPT, and nothing comes through stdin")
        return said
    return context if said is None else f"{context}\n\n{said}"


def _piped() -> str | None:
    """What a pipe or a file gives through stdin."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # there is none
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
    """Writes an answer as it comes, and why it ended where that was not its own end."""
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
    """The text without control characters: what a model says must not drive the terminal."""
    return "".join(c for c in text if c in "\n\t" or (c >= " " and not "\x7f" <= c <= "\x9f"))


def remark(text: str) -> None:
    """Says something that is not part of the answer."""
    progress("")
    print(f"pliant: {text}", file=sys.stderr, flush=True)
