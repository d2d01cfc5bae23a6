"""Architectures with random weights and small configurations, exported by torch and compared with eager in f64.

Each entry makes a module, its example arguments, its dynamic dims, and other arguments to call it with: one set has a batch of 1.
`python tests/torch_census.py [name…]` runs all of them, or some, and prints a line for each.
"""

from __future__ import annotations

import copy
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Shapes = dict[str, dict[int, str]]


@dataclass(frozen=True)
class Case:
    """An architecture: how to make it, the names of its dynamic dims, and its inputs for sizes of these dims."""

    make: Callable[[], Any]
    inputs: Callable[[dict[str, int]], dict[str, Any]]
    shapes: Shapes
    sizes: list[dict[str, int]]  # the first is the example of the export
    options: dict[str, Any] = field(default_factory=dict)


TEXT = [{"batch": 2, "n": 7}, {"batch": 1, "n": 12}, {"batch": 3, "n": 5}]
IMAGES = [{"batch": 2}, {"batch": 1}, {"batch": 3}]
SMALL = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 99,
    "max_position_embeddings": 64,
}  # fmt: skip


def _ids(d: dict[str, int]) -> dict[str, Any]:
    import torch

    generator = torch.Generator().manual_seed(d["batch"] * 100 + d["n"])
    ids = torch.randint(5, 99, (d["batch"], d["n"]), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _padded(d: dict[str, int]) -> dict[str, Any]:
    feeds = _ids(d)
    feeds["attention_mask"][0, :2] = 0
    return feeds


def _text(config: str, model: str, padded: bool = False, **options: Any) -> Case:
    def make() -> Any:
        import transformers

        settings = getattr(transformers, config)(**{**SMALL, **options})
        settings.use_cache = False
        settings.return_dict = True
        return getattr(transformers, model)(settings)

    dims = {0: "batch", 1: "n"}
    return Case(make, _padded if padded else _ids, {"input_ids": dims, "attention_mask": dims}, TEXT)


def _image(name: str, size: int = 64, **options: Any) -> Case:
    def make() -> Any:
        declare_torchvision()
        import timm

        return timm.create_model(name, pretrained=False, num_classes=10, **options)

    return Case(make, lambda d: {"x": _noise(d["batch"], 3, size, size)}, {"x": {0: "batch"}}, IMAGES)


def _noise(*shape: int) -> Any:
    import torch

    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _vision(config: str, model: str, size: int = 32, **options: Any) -> Case:
    def make() -> Any:
        import transformers

        settings = getattr(transformers, config)(**options)
        return getattr(transformers, model)(settings)

    return Case(make, lambda d: {"pixel_values": _noise(d["batch"], 3, size, size)}, {"pixel_values": {0: "batch"}}, IMAGES)


_GQA = {"num_key_value_heads": 2}
_ENCODER = {k: v for k, v in SMALL.items() if k not in ("vocab_size", "max_position_embeddings")}
_PATCHES = {**_ENCODER, "image_size": 32, "patch_size": 8}
CASES: dict[str, Case] = {
    "bert": _text("BertConfig", "BertModel", padded=True),
    "roberta": _text("RobertaConfig", "RobertaModel"),
    "distilbert": _text("DistilBertConfig", "DistilBertModel", dim=32, n_layers=2, n_heads=4, hidden_dim=48),
    "electra": _text("ElectraConfig", "ElectraModel", embedding_size=32),
    "albert": _text("AlbertConfig", "AlbertModel", embedding_size=16),
    "mpnet": _text("MPNetConfig", "MPNetModel"),
    "deberta_v2": _text("DebertaV2Config", "DebertaV2Model", relative_attention=True, position_buckets=16, pos_att_type=["p2c", "c2p"]),
    "modernbert": _text("ModernBertConfig", "ModernBertModel", pad_token_id=0, global_attn_every_n_layers=2, local_attention=8),
    "llama": _text("LlamaConfig", "LlamaModel", padded=True, **_GQA),
    "mistral": _text("MistralConfig", "MistralModel", sliding_window=4, **_GQA),
    "qwen2": _text("Qwen2Config", "Qwen2Model", **_GQA),
    "qwen3": _text("Qwen3Config", "Qwen3Model", head_dim=8, **_GQA),
    "gemma": _text("GemmaConfig", "GemmaModel", head_dim=8, **_GQA),
    "gemma2": _text("Gemma2Config", "Gemma2Model", head_dim=8, **_GQA),
    "gemma3": _text("Gemma3TextConfig", "Gemma3TextModel", head_dim=8, sliding_window=4, **_GQA),
    "phi": _text("PhiConfig", "PhiModel"),
    "phi3": _text("Phi3Config", "Phi3Model", pad_token_id=0, **_GQA),
    "gpt2": _text("GPT2Config", "GPT2Model", n_embd=32, n_layer=2, n_head=4, n_positions=64),
    "gpt_neox": _text("GPTNeoXConfig", "GPTNeoXModel"),
    "gptj": _text("GPTJConfig", "GPTJModel", n_embd=32, n_layer=2, n_head=4, rotary_dim=4),
    "opt": _text("OPTConfig", "OPTModel", ffn_dim=48, word_embed_proj_dim=32),
    "bloom": _text("BloomConfig", "BloomModel", n_layer=2, n_head=4),
    "falcon": _text("FalconConfig", "FalconModel"),
    "stablelm": _text("StableLmConfig", "StableLmModel", **_GQA),
    "olmo": _text("OlmoConfig", "OlmoModel", **_GQA),
    "granite": _text("GraniteConfig", "GraniteModel", **_GQA),
    "mixtral": _text("MixtralConfig", "MixtralModel", num_local_experts=4, **_GQA),
    "t5_encoder": _text("T5Config", "T5EncoderModel", d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4),
    "vit": _vision("ViTConfig", "ViTModel", **_PATCHES),
    "deit": _vision("DeiTConfig", "DeiTModel", **_PATCHES),
    "dinov2": _vision(
        "Dinov2Config", "Dinov2Model", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8
    ),
    "clip_vision": _vision("CLIPVisionConfig", "CLIPVisionModel", **_PATCHES),
    "siglip_vision": _vision("SiglipVisionConfig", "SiglipVisionModel", **_PATCHES),
    "convnext": _vision("ConvNextConfig", "ConvNextModel", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1]),
    "segformer": _vision(
        "SegformerConfig", "SegformerModel", size=64, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], decoder_hidden_size=16
    ),
    "regnet": _vision("RegNetConfig", "RegNetModel", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], groups_width=4),
    "resnet_hf": _vision("ResNetConfig", "ResNetModel", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]),
    "beit": _vision("BeitConfig", "BeitModel", **_PATCHES),
    "swin": _vision("SwinConfig", "SwinModel", image_size=32, patch_size=2, embed_dim=8, depths=[2, 1], num_heads=[2, 4], window_size=4),
    **{
        name: _image(name, size)
        for name, size in {
            "resnet18": 64, "resnet50": 64, "mobilenetv3_small_100": 64, "mobilenetv2_100": 64, "efficientnet_b0": 64,
            "convnext_atto": 64, "densenet121": 64, "regnety_002": 64, "vgg11": 64, "ghostnet_100": 64, "repvgg_a0": 64,
            "edgenext_xx_small": 64, "mobilevit_xxs": 64, "hrnet_w18_small": 64, "inception_v3": 96, "res2net50_26w_4s": 64,
            "dla34": 64, "xception41": 64, "poolformerv2_s12": 64, "efficientformerv2_s0": 224, "fastvit_t8": 64, "nfnet_f0": 64,
        }.items()
    },
    "vit_tiny": _image("vit_tiny_patch16_224", img_size=64),
    "deit_tiny": _image("deit_tiny_patch16_224", img_size=64),
    "swin_tiny": _image("swin_tiny_patch4_window7_224", size=224),
    "mixer_s32": _image("mixer_s32_224", size=224),
}  # fmt: skip


@dataclass
class Outcome:
    """What became of one architecture: `error` is empty if all sizes agree; the seconds of export and import, and of compilation."""

    error: str = ""
    worst: float = 0.0
    seconds: tuple[float, float] = (0.0, 0.0)


def declare_torchvision() -> None:
    """Declares the operators without which a torchvision that was built for another torch cannot be imported."""
    import importlib.util

    import torch

    for _ in range(50 if importlib.util.find_spec("torchvision") else 0):
        try:
            import torchvision  # noqa: F401
        except RuntimeError as problem:
            missing = str(problem).split()[1]
            torch.library.define(missing, "(Tensor x) -> Tensor")
            for name in [m for m in sys.modules if m.startswith("torchvision")]:
                del sys.modules[name]
        else:
            return


def run(name: str) -> Outcome:
    """Imports, compiles and compares one architecture at all its sizes."""
    import torch

    import pliant

    warnings.filterwarnings("ignore")
    declare_torchvision()
    case = CASES[name]
    torch.manual_seed(0)
    model = case.make().eval()
    example = case.inputs(case.sizes[0])
    start = time.perf_counter()
    program = pliant.from_torch(model, (), example, dynamic_shapes=case.shapes)
    middle = time.perf_counter()
    call = pliant.compile(program)
    outcome = Outcome(seconds=(middle - start, time.perf_counter() - middle))
    wide = copy.deepcopy(model).double()
    for sizes in case.sizes:
        feeds = case.inputs(sizes)
        with torch.no_grad():
            found = leaves(call(**feeds))
            exact = leaves(wide(**{k: v.double() if v.is_floating_point() else v for k, v in feeds.items()}))
            eager = leaves(model(**feeds))
        outcome.worst = max(outcome.worst, *differences(found, exact, eager, str(sizes)))
    return outcome


def differences(found: list[Any], exact: list[Any], eager: list[Any], where: str) -> Iterator[float]:
    """Yields each result's error relative to the largest magnitude; raises AssertionError beyond 1e-4 and 4 times eager's own."""
    assert len(found) == len(exact), f"{len(found)} results, {len(exact)} expected"
    for y, want, other in zip(found, exact, eager, strict=True):
        assert tuple(y.shape) == tuple(want.shape), f"{where}: shape {tuple(y.shape)}, {tuple(want.shape)} is expected"
        if not y.numel():
            continue
        scale = max(float(want.abs().max()), 1e-30)
        error, own = (float(np.abs(v.double().numpy() - want.double().numpy()).max()) / scale for v in (y, other))
        assert error <= max(1e-4, 4 * own), f"{where}: error {error:.2g}, eager's own {own:.2g}"
        yield error


def leaves(tree: Any) -> list[Any]:
    """Returns the tensors of a result in order."""
    import torch

    return [x for x in torch.utils._pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def main(names: list[str]) -> None:
    """Runs architectures and prints what became of each."""
    passed = 0
    for name in names or CASES:
        try:
            outcome = run(name)
        except Exception as problem:
            outcome = Outcome(f"{type(problem).__name__}: {str(problem)[:600]}".replace("\n", " | "))
        passed += not outcome.error
        seconds = "{:.1f} s, {:.1f} s".format(*outcome.seconds)
        print(f"{name}: {outcome.error or f'agrees, error {outcome.worst:.1e}; {seconds}'}", flush=True)
    print(f"{passed} of {len(names or CASES)} agree")


if __name__ == "__main__":
    main(sys.argv[1:])
