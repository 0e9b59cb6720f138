"""Single kernels, as `workloads` has whole programs: here a workload is many runs by name, one for each size."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from bench.workloads import Run, sync_all

LAYERS = [
    # rows, inputs, outputs of linear layers
    (32, 256, 256),
    (2048, 128, 384),
    (2048, 512, 128),
    (2048, 256, 1024),
    (512, 768, 3072),
    (788, 192, 768),
    (64, 2048, 1000),
]
PRODUCTS = [
    # shapes of both factors
    ((256, 256), (256, 256)),
    ((512, 512), (512, 512)),
    ((1024, 1024), (1024, 1024)),
    ((64, 128, 128), (64, 128, 32)),
]
ATTENTIONS = {"4 × 128 tokens": (4, 128), "4 × 1024 tokens": (4, 1024), "4096 tokens": (1, 4096)}
CONV_BATCH = 8
CONV_LAYERS = [
    # channels, size of the image, outputs, kernel, stride
    (3, 224, 64, 7, 2),
    (64, 56, 64, 1, 1),
    (64, 56, 64, 3, 1),
    (64, 56, 256, 1, 1),
    (256, 56, 512, 1, 2),
    (128, 56, 128, 3, 2),
    (128, 28, 128, 3, 1),
    (512, 28, 128, 1, 1),
    (256, 28, 256, 3, 2),
    (256, 14, 256, 3, 1),
    (256, 14, 1024, 1, 1),
    (512, 28, 1024, 1, 2),
    (512, 7, 512, 3, 1),
    (2048, 7, 512, 1, 1),
]
"""The distinct layers of a ResNet-50, but for three whose like is here."""


def _differentiated(
    torch: Any, forward: Callable[..., list[Any]], inputs: list[Any], cotangents: list[Any], compiled: bool
) -> Run:
    """`forward(*inputs)`, and the gradients of those of the inputs that need one.

    PyTorch compiles the function, as it is meant to; Weft compiles both.
    """
    call = torch.compile(forward) if compiled and torch.__name__ == "torch" else forward

    def step(cotangents: list[Any], *inputs: Any) -> list[Any]:
        results = call(*inputs)
        return [*results, *torch.autograd.grad(results, [x for x in inputs if x.requires_grad], cotangents)]

    whole = torch.compile(step) if compiled and torch.__name__ == "weft" else step

    def run() -> None:
        results = whole(cotangents, *inputs)
        sync_all(torch)
        del results

    return run


def gemm_names() -> list[str]:
    """The runs of `gemm`."""
    layers = ["×".join(map(str, (rows, inputs))) + f" → {outputs}" for rows, inputs, outputs in LAYERS]
    products = [" by ".join("×".join(map(str, shape)) for shape in pair) for pair in PRODUCTS]
    return [
        *(f"linear layer {layer}" for layer in layers),
        *(f"linear layer {layer}, with gradients of input and weight" for layer in layers),
        *(f"product of {product}" for product in products),
    ]


def gemm(torch: Any, *, compiled: bool = False) -> dict[str, Run]:
    """Products of matrices: forward, and as gradients. Calls have many of a size, that do not depend on each other."""
    torch.manual_seed(0)

    def pairs(left: tuple[int, ...], right: tuple[int, ...], grad: bool = False) -> list[tuple[Any, Any]]:
        work = math.prod(left) * math.prod(right[-2:]) // left[-1]
        shapes = [(left, right)] * max(4, min(64, (1 << 28) // work))
        return [(torch.randn(*a, requires_grad=grad), torch.randn(*b, requires_grad=grad)) for a, b in shapes]

    def forward(function: Any, factors: list[tuple[Any, Any]]) -> Run:
        def multiplied() -> list[Any]:
            return [function(a, b) for a, b in factors]

        call = torch.compile(multiplied) if compiled else multiplied

        def run() -> None:
            with torch.no_grad():
                results = call()
                sync_all(torch)
                del results

        return run

    def gradients(factors: list[tuple[Any, Any]]) -> Run:
        def layers(*flat: Any) -> list[Any]:
            return [torch.nn.functional.linear(a, b) for a, b in zip(flat[::2], flat[1::2], strict=True)]

        cotangents = [torch.randn(a.shape[0], b.shape[0]) for a, b in factors]
        return _differentiated(torch, layers, [x for pair in factors for x in pair], cotangents, compiled)

    linear = [pairs((rows, inputs), (outputs, inputs)) for rows, inputs, outputs in LAYERS]
    trained = [pairs((rows, inputs), (outputs, inputs), grad=True) for rows, inputs, outputs in LAYERS]
    runs = [
        *(forward(torch.nn.functional.linear, factors) for factors in linear),
        *(gradients(factors) for factors in trained),
        *(forward(torch.matmul, pairs(*shapes)) for shapes in PRODUCTS),
    ]
    return dict(zip(gemm_names(), runs, strict=True))


def attention(torch: Any, *, compiled: bool = False) -> dict[str, Run]:
    """Causal attention of 8 heads of 64 features, forward and backward, for each length."""
    attend = torch.nn.functional.scaled_dot_product_attention
    torch.manual_seed(0)

    def forward(*inputs: Any) -> list[Any]:
        return [attend(*inputs, is_causal=True)]

    def case(batch: int, length: int) -> Run:
        inputs = [torch.randn(batch, 8, length, 64, requires_grad=True) for _ in range(3)]
        return _differentiated(torch, forward, inputs, [torch.randn(batch, 8, length, 64)], compiled)

    return {name: case(*sizes) for name, sizes in ATTENTIONS.items()}


def conv(torch: Any, *, compiled: bool = False) -> dict[str, Run]:
    """Each layer of `CONV_LAYERS`, forward and backward; images have no gradient."""
    torch.manual_seed(0)
    return {name: _conv_layer(torch, compiled, *sizes) for name, sizes in convolutions().items()}


def convolutions() -> dict[str, tuple[int, int, int, int, int]]:
    """The sizes of `CONV_LAYERS` by name."""
    return {
        f"{kernel}×{kernel}{f'/{stride}' if stride > 1 else ''} {channels} → {outputs}, {size}²": sizes
        for sizes in CONV_LAYERS
        for channels, size, outputs, kernel, stride in [sizes]
    }


def _conv_layer(torch: Any, compiled: bool, channels: int, size: int, outputs: int, kernel: int, stride: int) -> Run:
    weight = torch.randn(outputs, channels, kernel, kernel, requires_grad=True)
    x = torch.randn(CONV_BATCH, channels, size, size, requires_grad=channels > 3)
    g = torch.randn(CONV_BATCH, outputs, -(-size // stride), -(-size // stride))

    def forward(weight: Any, x: Any) -> list[Any]:
        return [torch.nn.functional.conv2d(x, weight, None, stride, kernel // 2)]

    return _differentiated(torch, forward, [weight, x], [g], compiled)
