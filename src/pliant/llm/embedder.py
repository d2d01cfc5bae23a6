"""`pliant.Embedder`: sentence embeddings by a BERT model, from the catalog or from a folder in the format of the Hugging Face hub.

    e = pliant.Embedder("minilm")                 # all-MiniLM-L6-v2, downloaded if needed
    e = pliant.Embedder("my-bert/")               # config.json, model.safetensors, tokenizer.json; pooling in 1_Pooling/config.json
    a, b = e.embed(["a cat on a mat", "a kitten on a rug"])
    a @ b                                         # their similarity

A text that is longer than the model's context is an error, unless `truncate=True` cuts it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..frontends.checkpoint import is_checkpoint
from ..frontends.checkpoint.config import Config, read_json, read_object
from ..frontends.checkpoint.weights import open_weights
from ..support.errors import ArgumentError, Error, ModelFileError, UnsupportedError
from ..support.progress import telling
from .catalog import CATALOGUE
from .locate import locate
from .models.bert import Bert, Settings
from .tokenizer.from_json import from_json_text, json_file_text

if TYPE_CHECKING:
    from ..runtime.executable import Executable

BATCH = 32  # texts per run, unless said otherwise: bounds the memory that a long list of texts needs


class Embedder:
    """A sentence embedder: turns texts into vectors by a BERT model."""

    def __init__(
        self,
        source: str | os.PathLike[str],
        *,
        threads: int | None = None,
        offline: bool = False,
        progress: Callable[[str], None] | None = None,
        announce: Callable[[str], None] | None = None,
    ) -> None:
        """Loads the model and compiles it.

        `source` is a name of the catalog or a folder, `threads` fixes the number of threads. `announce` is called before a download,
        `progress` during work; with `offline`, nothing is downloaded. Raises ModelFileError if the tokenizer does not fit the model.
        """
        import pliant

        place = _folder(source, offline, progress, announce)
        settings = _settings(place)
        text = json_file_text(place / "tokenizer.json")
        self._start(settings, text, lambda: pliant.compile(_model(place, settings), threads=threads), f"`{place}`")

    def _start(self, settings: Settings, tokenizer_text: str, run: Callable[[], Executable], source: str) -> None:
        """Makes the embedder of its parts; raises ModelFileError, which names the source, if the tokenizer does not fit the model."""
        self.settings, self.tokenizer_text = settings, tokenizer_text
        self.tokenizer = from_json_text(tokenizer_text)
        if len(self.tokenizer) > settings.vocab_size:
            raise ModelFileError(f"{source}: the tokenizer has {len(self.tokenizer)} words, the model {settings.vocab_size}")
        self._run = run()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the embedder as the artifact of its program with its tokenizer (`llm/pickled.py`)."""
        from .pickled import embedder_bytes, embedder_of

        return embedder_of, (embedder_bytes(self, self._run),)

    @property
    def width(self) -> int:
        """The number of elements of an embedding vector."""
        return self.settings.width

    def embed(
        self,
        texts: str | Iterable[str],
        *,
        truncate: bool = False,
        batch_size: int = BATCH,
        progress: Callable[[str], object] | bool | None = None,
    ) -> NDArray[np.float32]:
        """Returns the vector of a text, f32[width], or of several `texts`, f32[texts, width].

        A run of the model takes `batch_size` of them, of similar lengths. `progress` is called with a text before each run; True shows it
        on stderr. Raises an Error for a text of more tokens than the model reads, unless `truncate` cuts it, and for a `batch_size` below
        1; ArgumentError for what is no text.
        """
        if isinstance(texts, str):
            one: NDArray[np.float32] = self.embed([texts], truncate=truncate)[0]
            return one
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise Error(f"`batch_size` is {batch_size!r}; it is a number from 1 up", help=f"e.embed(texts, batch_size={BATCH})")
        texts = _texts(texts)
        rows = [self._tokens(text, truncate) for text in texts]
        vectors = np.empty((len(rows), self.width), np.float32)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))  # similar lengths in one batch need less padding
        with telling(progress) as say:
            for at in range(0, len(rows), batch_size):
                say(f"embedded {at} of {len(rows)} texts")
                part = order[at : at + batch_size]
                vectors[part] = self._run(*_padded([rows[i] for i in part]))
        return vectors

    def _tokens(self, text: str, truncate: bool) -> list[int]:
        """Returns the tokens of a text; raises an Error if there are too many, or cuts them with `truncate` (the end tokens stay)."""
        ids, limit = self.tokenizer.encode(text), self.settings.positions
        if len(ids) <= limit:
            return ids
        if not truncate:
            raise Error(f"a text has {len(ids)} tokens, and the model reads {limit}", help="cut it into parts, or pass truncate=True")
        after = list(self.tokenizer.vocabulary.after)
        return ids[: limit - len(after)] + after


def _texts(texts: Any) -> list[str]:
    """Returns texts as a list; raises ArgumentError for what is no text, with its place."""
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        way = "e.embed(text.decode())" if isinstance(texts, bytes) else 'e.embed("a text"), or e.embed(["one", "two"])'
        raise ArgumentError(f"`embed` takes a text or a list of texts, and `{type(texts).__name__}` is given", help=way)
    found = list(texts)
    for at, text in enumerate(found):
        if not isinstance(text, str):
            raise ArgumentError(
                f"`embed` takes texts, and number {at} is of the type `{type(text).__name__}`", help='e.embed(["one", "two"])'
            )
    return found


def _folder(source: str | os.PathLike[str], offline: bool, progress: Callable[[str], None] | None, announce: Any) -> Path:
    """Returns the folder of a model: of a catalog name (downloaded if needed), or the path itself.

    Raises ModelFileError if there is none. With `offline`, nothing is downloaded.
    """
    known, place = CATALOGUE.get(os.fspath(source)), Path(source).expanduser()
    if known is not None and known.embeds:
        return locate(source, offline=offline, progress=progress, announce=announce).parent
    if place.is_dir():
        return place
    from ..support.resolve import near

    names = [m.name for m in CATALOGUE.values() if m.embeds]
    raise ModelFileError(
        f"there is no embedder `{os.fspath(source)}`",
        facts=["known names: " + ", ".join(names)],
        help=near(os.fspath(source), names) or "a known name, or a folder with config.json, model.safetensors and tokenizer.json",
    )


def _padded(rows: list[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the token rows padded with zeros at the end, and the mask (1 for a token, 0 for padding)."""
    lengths = np.array([len(row) for row in rows])
    mask = (np.arange(max(1, lengths.max())) < lengths[:, None]).astype(np.int64)
    ids = np.zeros_like(mask)
    for row, tokens in zip(ids, rows, strict=True):
        row[: len(tokens)] = tokens
    return ids, mask


def _model(place: Path, s: Settings) -> Bert:
    """Builds the model and loads its weights, which may be in several parts; accepts names with and without the prefix `bert.`."""
    weights = open_weights(place)
    model = Bert(s)
    own = dict(model.named_parameters())
    there = weights.tensors
    prefix = "bert." if "embeddings.LayerNorm.weight" not in there and "bert.embeddings.LayerNorm.weight" in there else ""
    return model.load_state_dict({name: weights.array(prefix + name) for name in own if prefix + name in there})


def embeds(place: Path) -> bool:
    """True for a checkpoint folder of a model that makes embeddings; raises ModelFileError if its config cannot be read."""
    return is_checkpoint(place) and Config.read(place / "config.json").get("model_type") == "bert"


def embedder_facts(place: Path) -> dict[str, Any]:
    """Returns what a folder says of its model, for `pliant inspect`, ready for JSON; raises as `Embedder` does, but compiles nothing."""
    s, weights = _settings(place), open_weights(place)
    tensors = [
        {"name": name, "dtype": weights.dtype(name), "shape": list(weights.shape(name)), "bytes": len(weights.raw(name))}
        for name in weights.tensors
    ]
    pooling = "the first token" if s.first else "the mean over tokens"
    facts = {"width": s.width, "layers": s.layers, "heads": s.heads, "context": s.positions, "vocabulary": s.vocab_size}
    return {"file": str(place), "architecture": "bert", **facts, "pooling": pooling, "normalized": s.normalized, "tensors": tensors}


def _settings(place: Path) -> Settings:
    """Reads config.json and the pooling settings of sentence-transformers.

    Raises UnsupportedError for models that are not supported, ModelFileError for a broken file.
    """
    config = Config.read(place / "config.json")
    kind, act = config.get("model_type"), config.get("hidden_act") or "gelu"
    if kind != "bert" or act != "gelu" or (config.get("position_embedding_type") or "absolute") != "absolute":
        raise UnsupportedError(
            f"`{place}`: a model of the kind {kind!r} with {act!r} is not supported", facts=["supported: bert, gelu, absolute positions"]
        )
    s = Settings(
        width=_count(config, "hidden_size"),
        heads=_count(config, "num_attention_heads"),
        ffn=_count(config, "intermediate_size"),
        layers=_count(config, "num_hidden_layers"),
        vocab_size=_count(config, "vocab_size"),
        positions=_count(config, "max_position_embeddings"),
        kinds=_count(config, "type_vocab_size"),
        eps=config.positive("layer_norm_eps", 1e-12),
        first=_first_token(place),
        normalized=_normalized(place),
    )
    if s.eps >= 1:
        raise config.wrong("layer_norm_eps", "a number between 0 and 1")
    if s.width % s.heads:
        raise ModelFileError(f"config.json: {s.heads} heads do not divide a width of {s.width}")
    return s


def _first_token(place: Path) -> bool:
    """True if the pooling config asks for the first token; raises for anything but first token or mean."""
    path = place / "1_Pooling" / "config.json"
    if not path.exists():
        return False
    modes = [name for name, value in read_object(path).items() if name.startswith("pooling_mode_") and value is True]
    if modes not in (["pooling_mode_mean_tokens"], ["pooling_mode_cls_token"]):
        raise UnsupportedError(f"`{path}`: pooling by {modes} is not supported", facts=["supported: the mean over tokens, the first token"])
    return modes == ["pooling_mode_cls_token"]


def _normalized(place: Path) -> bool:
    """True if modules.json has a normalization step, or does not exist."""
    path = place / "modules.json"
    if not path.exists():
        return True
    modules = read_json(path)
    return isinstance(modules, list) and any(isinstance(m, dict) and str(m.get("type", "")).endswith(".Normalize") for m in modules)


def _count(config: Config, key: str) -> int:
    return config.integer(key, low=1, high=1 << 22)
