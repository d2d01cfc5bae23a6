"""Which ATen operators stay whole when an exported program is decomposed: those that a rule imports as one operator.

ep.run_decompositions(decompositions())       # linear stays linear, and not a transpose and addmm
"""

from __future__ import annotations

from typing import Any

KEEP = {
    "linear", "matmul", "einsum", "scaled_dot_product_attention", "layer_norm", "rms_norm", "group_norm", "instance_norm", "conv1d",
    "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "silu", "mish", "hardswish", "hardsigmoid",
    "softplus", "relu6", "prelu", "selu", "celu", "softmax", "log_softmax", "logsumexp", "max_pool1d", "max_pool2d", "max_pool3d",
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "upsample_nearest1d",
    "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d",
    "upsample_bicubic2d", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "grid_sampler", "im2col", "stack", "split", "tile",
    "roll", "outer", "repeat_interleave", "lstm", "gru", "rnn_tanh", "rnn_relu", "log_sigmoid", "std", "var",
}  # fmt: skip


def decompositions() -> Any:
    """Returns torch's default table of decompositions for ATen without those of operators that stay whole (KEEP)."""
    import torch

    table = torch.export.default_decompositions()
    for op in list(table.keys()):
        if op.namespace == "aten" and op._schema.name.removeprefix("aten::") in KEEP:
            table.pop(op)
    return table
