"""Modules and functions on quantized tensors."""

from weft._base.exports import on_first_use as _on_first_use

__getattr__, __dir__ = _on_first_use(
    __name__,
    {
        "weft.nn._pooling": ("MaxPool2d",),
        "weft.ao.nn.quantized.modules._attention": ("MultiheadAttention",),
        "weft.ao.nn.quantized.modules.activation": (
            "ELU",
            "Hardswish",
            "LeakyReLU",
            "PReLU",
            "ReLU6",
            "Sigmoid",
            "Softmax",
        ),
        "weft.ao.nn.quantized.modules.batchnorm": (
            "BatchNorm2d",
            "BatchNorm3d",
        ),
        "weft.ao.nn.quantized.modules.conv": (
            "Conv1d",
            "Conv2d",
            "Conv3d",
            "ConvTranspose1d",
            "ConvTranspose2d",
            "ConvTranspose3d",
        ),
        "weft.ao.nn.quantized.modules.dropout": ("Dropout",),
        "weft.ao.nn.quantized.modules.embedding_ops": (
            "Embedding",
            "EmbeddingBag",
        ),
        "weft.ao.nn.quantized.modules.functional_modules": (
            "FloatFunctional",
            "FXFloatFunctional",
            "QFunctional",
        ),
        "weft.ao.nn.quantized.modules.linear": ("Linear",),
        "weft.ao.nn.quantized.modules.normalization": (
            "GroupNorm",
            "InstanceNorm1d",
            "InstanceNorm2d",
            "InstanceNorm3d",
            "LayerNorm",
        ),
        "weft.ao.nn.quantized.modules.rnn": ("LSTM",),
        "weft.ao.nn.quantized.modules.stubs": (
            "DeQuantize",
            "Quantize",
        ),
    },
    ("dynamic", "functional", "modules"),
)
