"""`pliant.nn`: a small module API in the style of PyTorch, documented in docs/nn.md.

class Mlp(nn.Module):
    def __init__(self) -> None:
        self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x: Tensor[f32, n, 64]) -> Tensor[f32, n, 64]:
        return self.down(ops.gelu(self.up(x)))

f = pliant.compile(Mlp().load_state_dict(nn.load_safetensors("mlp.safetensors")))
"""

from ..safetensors import load_safetensors
from .activation import GELU, Dropout, Identity, ReLU, Sigmoid, SiLU, Softmax, Tanh
from .attention import MultiheadAttention, attention, join_heads, split_heads
from .layers import (
    BatchNorm,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Conv1d,
    Conv2d,
    Conv3d,
    Embedding,
    GroupNorm,
    LayerNorm,
    Linear,
    RMSNorm,
)
from .module import Buffer, Module, ModuleList, Parameter, Sequential

__all__ = [
    "GELU",
    "BatchNorm",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Buffer",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "Dropout",
    "Embedding",
    "GroupNorm",
    "Identity",
    "LayerNorm",
    "Linear",
    "Module",
    "ModuleList",
    "MultiheadAttention",
    "Parameter",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "attention",
    "join_heads",
    "load_safetensors",
    "split_heads",
]
