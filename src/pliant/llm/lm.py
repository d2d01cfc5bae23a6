"""`pliant.LLM`: a language model from a GGUF file or a checkpoint folder of transformers, ready to answer.

    lm = pliant.LLM("smollm2-135m")                 # a name, a path, or hf:org/repo[:quant]; downloaded and compiled if needed
    print(lm.generate("Why is the sky blue?", max_tokens=100, seed=7))
    for piece in lm.stream([{"role": "user", "content": "Hi"}]):
        print(piece, end="", flush=True)
    talk = lm.session(system="You are terse.")      # a conversation; the KV cache keeps what was said before
    lm.logits(lm.tokenizer.encode("Hello"))         # f32[tokens, vocabulary]

    with pliant.LLM("smollm2-135m") as lm: ...      # its memory is free after the block

The same prompt, options and seed give the same text, for any number of threads and whatever other requests run at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from ..frontends.gguf import GgufFile
from ..support.errors import ArgumentError, Error, UnsupportedError
from ..support.html_table import html_table
from ..support.units import in_bytes
from .catalog import CATALOGUE
from .engine import Engine, too_long
from .locate import locate
from .model_file import open_model, tokenizer_of
from .prompt import Prompt, Prompts
from .reply import Progress, Reply, Stream
from .sampling import AnswerKeywords, Sampler, SamplingKeywords, SamplingOptions
from .stop import StopStrings
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .session import Session

Say = Callable[[str], None]


class LLM:
    """A language model: generates text, streams it, and holds conversations."""

    def __init__(
        self,
        source: str | os.PathLike[str],
        *,
        threads: int | None = None,
        cache: str = "f16",
        context: int | None = None,
        offline: bool = False,
        progress: Say | None = None,
        announce: Say | None = None,
    ) -> None:
        """Loads the model and its tokenizer, and compiles the program or takes it from the program store.

        `source` is a path, a name of the catalog, or hf:org/repo[:quant]. `threads` fixes the number of threads. `cache` is the dtype of
        the KV cache (f16 or f32), `context` the largest number of tokens of a conversation. `announce` is called before a download,
        `progress` during work; with `offline`, nothing is downloaded.
        """
        path = locate(_speaking(source), offline=offline, progress=progress, announce=announce)
        self._start(open_model(path), os.fspath(source), progress or _nothing, threads=threads, cache=cache, context=context)

    def _start(self, file: GgufFile, name: str, say: Say | None = None, **options: Any) -> None:
        """Makes the model of an open file ready; `options` are those of the engine."""
        say = say or _nothing
        self.file, self.name, self.options = file, name, options
        self.tokenizer: Tokenizer = tokenizer_of(file)
        self.prompts = Prompts(file, self.tokenizer)
        say(f"preparing {name}")
        self._engine: Engine | None = Engine(file, **options)
        say("")

    @property
    def engine(self) -> Engine:
        """What runs the model; raises an Error if the model was closed."""
        if self._engine is None:
            raise Error(f"the language model {self.name} was closed", help=f"lm = pliant.LLM({self.name!r}) opens it again")
        return self._engine

    def close(self) -> None:
        """Frees the program with its weights and the KV cache; running streams and later calls raise an Error."""
        if self._engine is not None:
            self._engine.run.cancel()
            self._engine = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _facts(self) -> dict[str, str]:
        """Returns what the texts for people say of the model, by name."""
        facts = {"architecture": self.file.architecture, "vocabulary": f"{len(self.tokenizer)} tokens"}
        if self._engine is None:
            return {**facts, "state": "closed"}
        size = in_bytes(sum(t.size for t in self.file.tensors.values()))
        return {**facts, "weights": size, "context": f"{self.context} tokens", "KV cache": str(self._engine.cache.keys.dtype)}

    def __repr__(self) -> str:
        return f"<LLM {self.name}: {', '.join(f'{name} {value}' for name, value in self._facts().items())}>"

    def _repr_html_(self) -> str:
        """Returns what is known of the model as a table, which notebooks show."""
        return html_table(self.name, (), self._facts().items())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the model as the bytes of its files with its options; what is in the KV cache is left out (`llm/pickled.py`)."""
        from .pickled import language_model_bytes, language_model_of

        return language_model_of, (language_model_bytes(self),)

    @property
    def context(self) -> int:
        """The largest number of tokens of a prompt with its answer."""
        return self.engine.context

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        raw: bool = False,
        **sampling: Unpack[SamplingKeywords],
    ) -> Reply:
        """Returns the answer to `prompt`, a text, messages or tokens; with `raw`, the continuation of a text.

        It ends after `max_tokens` at the latest, and before the first text of `stop`. `sampling`: temperature, top_k, top_p, min_p,
        repetition_penalty, repetition_window, seed. Raises an Error if the prompt does not fit into the context.
        """
        stream = self.stream(prompt, max_tokens=max_tokens, stop=stop, raw=raw, **sampling)
        for _ in stream:
            pass
        return stream.reply

    def stream(
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        raw: bool = False,
        **sampling: Unpack[SamplingKeywords],
    ) -> Stream:
        """As `generate`, but returns a Stream that yields the text piece by piece.

        `prompt`, `max_tokens`, `stop`, `raw` and `sampling` are those of `generate`. Raises an Error for wrong options, and if the prompt
        does not fit into the context.
        """
        sampler = Sampler(options(sampling))
        stops = StopStrings([stop] if isinstance(stop, str) else stop)
        if max_tokens is not None and (isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1):
            raise Error(f"`max_tokens` is {max_tokens!r}; it is a number from 1 up, or None")
        ids = self.prompts.encode(prompt, raw)
        if len(ids) >= self.context:  # no room for a single token of an answer
            raise too_long(len(ids), self.context, self.engine.trained_context)
        state = Progress(len(ids), 0, [], [])
        return Stream(self._pieces(ids, sampler, stops, max_tokens, state), state)

    def session(self, system: str | None = None, *, announce: Say | None = None) -> Session:
        """Returns a new conversation, which begins with the instructions `system`.

        `announce` is called when old turns are dropped; without it, a message on stderr says so.
        """
        from .session import Session

        return Session(self, system, announce)

    def logits(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Returns the logits after each of the tokens: f32[tokens, vocabulary].

        Raises an Error if there are none, ArgumentError for a text or a single number.
        """
        if isinstance(ids, str):
            text = repr(ids) if len(ids) <= 40 else "text"
            raise ArgumentError("logits are those of tokens, and a text is given", help=f"lm.logits(lm.tokenizer.encode({text}))")
        if not isinstance(ids, Sequence | np.ndarray):
            way = f"lm.logits([{ids}])" if isinstance(ids, int) else "lm.logits([1, 2, 3])"
            raise ArgumentError(f"logits are those of a list of tokens, and `{type(ids).__name__}` is given", help=way)
        if not len(ids):
            raise Error("logits of no tokens")
        sequence = self.engine.cache.open(())
        try:
            return self.engine.feed_all(sequence, ids)
        finally:
            self.engine.cache.close(sequence)

    def _pieces(self, ids: list[int], sampler: Sampler, stops: StopStrings, max_tokens: int | None, state: Progress) -> Iterator[str]:
        """Yields the pieces of an answer; keeps `state` up to date, so that a stream closed early has a correct reply."""
        engine, ends = self.engine, self.tokenizer.ends
        decoder = self.tokenizer.stream_decoder()
        history = list(ids)
        sequence = engine.cache.open(ids)
        state.cached_tokens = sequence.length
        try:
            logits = engine.feed(sequence, ids[sequence.length :])
            while True:
                token = sampler.sample(logits, history)
                if token in ends:
                    state.finish_reason = "stop"
                    break
                state.tokens.append(token)
                history.append(token)
                if piece := stops.push(decoder.push(token)):
                    state.text.append(piece)
                    yield piece
                if (reason := self._finished(state, stops, max_tokens, sequence.length)) is not None:
                    state.finish_reason = reason
                    break
                logits = self.engine.feed(sequence, [token])
        finally:
            engine.cache.close(sequence)
        if rest := stops.push(decoder.finish()) + stops.finish():
            state.text.append(rest)
            yield rest

    def _finished(self, state: Progress, stops: StopStrings, max_tokens: int | None, length: int) -> str | None:
        """Returns the finish reason ("stop", "length" or "context") if the answer must end now, else None."""
        if stops.found is not None:
            return "stop"
        if max_tokens is not None and len(state.tokens) >= max_tokens:
            return "length"
        return "context" if length >= self.context else None


def _speaking(source: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Returns the source unchanged; raises UnsupportedError if the catalog knows it as an embedder, which cannot generate text."""
    known = CATALOGUE.get(os.fspath(source))
    if known is not None and known.embeds:
        raise UnsupportedError(f"`{known.name}` is an embedding model and cannot generate text", help=f'pliant.Embedder("{known.name}")')
    return source


def options(sampling: SamplingKeywords) -> SamplingOptions:
    """Returns sampling options from keywords; raises an ArgumentError for an unknown one, with the nearest known name."""
    known = SamplingOptions.__dataclass_fields__
    for name in sampling:
        if name not in known:
            from ..support.resolve import near

            every = list(AnswerKeywords.__annotations__)
            raise ArgumentError(f"there is no option `{name}`", facts=["there are: " + ", ".join(every)], help=near(name, every))
    return SamplingOptions(**sampling)


def _nothing(text: str) -> None:
    pass
