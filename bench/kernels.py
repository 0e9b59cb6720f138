"""Single kernels, as `workloads` has whole programs: here a workload is many runs by name, one for each size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.workloads import Run, sync

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
SQUARES = [128, 512, 1024]
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
_TOGETHER = 8  # products in a call: what a call costs beside computing is other rows' subject


def products() -> dict[str, tuple[tuple[int, ...], tuple[int, ...], bool, bool]]:
    """Shapes of both factors, and which of them are transposed, by name."""
    cases: dict[str, tuple[tuple[int, ...], tuple[int, ...], bool, bool]] = {}
    for rows, inputs, outputs in LAYERS:
        name = f"linear layer {rows}×{inputs} → {outputs}"
        cases[name] = ((rows, inputs), (outputs, inputs), False, True)
        cases[f"{name}, gradient of the input"] = ((rows, outputs), (outputs, inputs), False, False)
        cases[f"{name}, gradient of the weight"] = ((rows, outputs), (rows, inputs), True, False)
    for n in SQUARES:
        cases[f"{n}×{n} matrices"] = ((n, n), (n, n), False, False)
    cases["64 × (128×32 by 32×128)"] = ((64, 128, 32), (64, 128, 32), False, True)
    return cases


def gemm(torch: Any, *, compiled: bool = False, bfloat16: bool = False) -> dict[str, Run]:
    """Eight products of matrices that do not depend on each other, for each shape."""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if bfloat16 else torch.float32

    def case(left: Sequence[int], right: Sequence[int], turn_left: bool, turn_right: bool) -> Run:
        pairs = [(torch.randn(*left).to(dtype), torch.randn(*right).to(dtype)) for _ in range(_TOGETHER)]

        def multiplied(pairs: list[tuple[Any, Any]]) -> list[Any]:
            return [(a.mT if turn_left else a) @ (b.mT if turn_right else b) for a, b in pairs]

        call = torch.compile(multiplied) if compiled else multiplied

        def run() -> None:
            with torch.no_grad():
                for result in call(pairs):
                    sync(torch, result)

        return run

    return {name: case(*shapes) for name, shapes in products().items()}


def attention(torch: Any, *, compiled: bool = False) -> dict[str, Run]:
    """Causal attention of 8 heads of 64 features, forward and backward, for each length."""
    attend = torch.nn.functional.scaled_dot_product_attention
    torch.manual_seed(0)

    def forward(*inputs: Any) -> Any:
        return attend(*inputs, is_causal=True)

    chosen = torch.compile(forward) if compiled and torch.__name__ == "torch" else forward

    def step(g: Any, *inputs: Any) -> Any:
        return torch.autograd.grad(chosen(*inputs), inputs, g)

    whole = torch.compile(step) if compiled and torch.__name__ == "weft" else step

    def case(batch: int, length: int) -> Run:
        q, k, v = (torch.randn(batch, 8, length, 64, requires_grad=True) for _ in range(3))
        g = torch.randn(batch, 8, length, 64)

        def run() -> None:
            for gradient in whole(g, q, k, v):
                sync(torch, gradient)

        return run

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
    layer = torch.nn.Conv2d(channels, outputs, kernel, stride, kernel // 2, bias=False)
    x = torch.randn(CONV_BATCH, channels, size, size, requires_grad=channels > 3)
    g = torch.randn(CONV_BATCH, outputs, -(-size // stride), -(-size // stride))
    inputs = [layer.weight, x] if channels > 3 else [layer.weight]
    forward = torch.compile(layer) if compiled and torch.__name__ == "torch" else layer

    def step(x: Any, g: Any) -> tuple[Any, ...]:
        y = forward(x)
        return (y, *torch.autograd.grad(y, inputs, g))

    whole = torch.compile(step) if compiled and torch.__name__ == "weft" else step

    def run() -> None:
        for tensor in whole(x, g):
            sync(torch, tensor)

    return run
