r"""Pre-tokenizers of BPE, which cut text into words: the kinds that GGUF files name in `tokenizer.ggml.pre`.

A kind is a list of patterns. The first pattern cuts the text into its matches and the text between them, the next one cuts each of these
pieces, and so on, as the model's own tokenizer does. Patterns are written exactly as in the models' `tokenizer.json` files, so that those
can be looked up here. A pattern from a file is never executed: it is known, or refused.

    [*words("smollm").split("It's 2024")]       # ["It", "'s", " ", "2", "0", "2", "4"]
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from ...frontends.gguf.parse import shown
from ...support.errors import UnsupportedError
from ...support.record import dataclass
from .classes import Pattern

_CJK = "一-龥"
_CJK_AND_KANA = "一-龥぀-ゟ゠-ヿ"
_SETS = {
    # the letters, punctuation and ideographs of deepseek-llm
    "Cased": "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌ"
    "ῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃",
    "Marks": "!-/:-~！-／：-～‘-‟　-。",
    "Han": f"{_CJK}ࠀ-一가-퟿",
}
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_SHORT}|{_LETTERS}|\p{{N}}{{1,3}}|{_REST}"
_QWEN2 = rf"{_SHORT}|{_LETTERS}|\p{{N}}|{_REST}"
_QWEN35 = rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_REST_WITH_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}|{_REST_WITH_SLASH}"
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_SHORT}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_SHORT}?|"
    rf"\p{{N}}{{1,3}}|{_REST_WITH_SLASH}"
)
_DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
    r""" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
_BLOOM = r" ?[^(\s|\p{Stops})]+"


@dataclass(frozen=True, slots=True)
class Kind:
    """A pre-tokenizer: its patterns and the named sets in them.

    With `whole_words`, a word that is a token stays one whatever the merges say. `add_bos` is the default of models of this kind.
    """

    patterns: tuple[str, ...]
    sets: tuple[tuple[str, str], ...] = ()
    whole_words: bool = False
    add_bos: bool = False


_BASE = {
    "default": Kind((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "gpt-2": Kind((_GPT2,)),
    "smollm": Kind((r"\p{N}", _GPT2)),
    "llama-bpe": Kind((_LLAMA3,), whole_words=True, add_bos=True),
    "dbrx": Kind((_LLAMA3,)),
    "glm4": Kind((_LLAMA3,), whole_words=True),
    "qwen2": Kind((_QWEN2,)),
    "qwen35": Kind((_QWEN35,)),
    "falcon": Kind((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    "deepseek-llm": Kind(
        (r"[\r\n]", r"\s?\p{Cased}+", r"\s?\p{Marks}+", r"\s+\Z", r"\p{Han}+", r"\p{N}+"),
        tuple(_SETS.items()),
    ),
    "deepseek-coder": Kind((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"\p{Han}+", r"\p{N}"), (("Han", _SETS["Han"]),)),
    "deepseek-v3": Kind((r"\p{N}{1,3}", r"\p{Han}+", _DEEPSEEK3), (("Han", _CJK_AND_KANA),)),
    "tekken": Kind((_TEKKEN,), whole_words=True, add_bos=True),
    "gpt-4o": Kind((_GPT4O,)),
    "bloom": Kind((_BLOOM,), (("Stops", ".,!?…。，、।۔،"),)),
    "viking": Kind((_BLOOM, r"\p{N}"), (("Stops", ".,!?…。，、।۔،"),)),
    "lines": Kind((r"[^\n]+|[\n]+",)),  # for models whose merges cross spaces
}
_ALIKE = {
    "gpt-2": "phi-2 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe gigachat a.x-4.0 mellum modern-bert mpt olmo "
    "jais trillion granite-docling exaone4",
    "smollm": "starcoder refact command-r codeshell exaone minerva-7b mellum2",
    "llama-bpe": "llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
    "dbrx": "smaug-bpe chatglm-bpe",
    "glm4": "glm5",
    "qwen2": "stablelm2 deepseek-r1-qwen kormo f2llmv2 megrez hunyuan solar-open grok-2",
    "deepseek-v3": "hunyuan-dense joyai-llm hy_v4",
    "gpt-4o": "llama4 kanana2 talkie minimax-m2",
    "bloom": "poro-chat gpt3-finnish",
    "lines": "gemma4",
}
KINDS: dict[str, Kind] = {**_BASE, **{name: _BASE[base] for base, names in _ALIKE.items() for name in names.split()}}
# Patterns as `tokenizer.json` files write them -> ours; each may use the set `Han`.
KNOWN_PATTERNS: dict[str, str] = {
    **{pattern: pattern for pattern in (r"\p{N}{1,3}", _GPT2, _LLAMA3, _QWEN2, _QWEN35, _TEKKEN, _GPT4O, _DEEPSEEK3)},
    f"[{_CJK_AND_KANA}]+": r"\p{Han}+",
}
KNOWN_SETS = (("Han", _CJK_AND_KANA),)


class Splitter:
    """The pre-tokenizer: cuts texts into words before they become tokens."""

    def __init__(self, kind: Kind) -> None:
        self.patterns = [Pattern(pattern, dict(kind.sets)) for pattern in kind.patterns]

    def split(self, text: str) -> Iterator[str]:
        """Yields the words of a text; together they are the text."""
        if not self.patterns:
            yield text
            return
        spelled = self.patterns[0].spell(text)  # the patterns of a kind have the same sets
        spans = [(0, len(text))] if text else []
        for pattern in self.patterns:
            spans = [piece for start, end in spans for piece in pattern.split(spelled, start, end)]
        for start, end in spans:
            yield text[start:end]


@cache
def words(name: str) -> Splitter:
    """Returns the splitter (pre-tokenizer) of that name; raises UnsupportedError if it is unknown."""
    return Splitter(kind(name))


def kind(name: str) -> Kind:
    """Returns the record of the pre-tokenizer of that name; raises UnsupportedError if it is unknown."""
    known = KINDS.get(name)
    if known is None:
        from ...support.resolve import near  # imported late: slow, and needed only for error messages

        raise UnsupportedError(
            f"tokenizer: the pre-tokenizer `{shown(name)}` is not supported",
            facts=["supported: " + ", ".join(sorted(KINDS))],
            help=near(name, KINDS),
        )
    return known
