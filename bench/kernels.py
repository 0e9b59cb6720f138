"""Programs that are one kernel each, over a table of sizes: every function gives a run for each of its rows.

As in `workloads`, they are written once, in PyTorch's API.
"""

from __future__ import annotations

from typing import Any

from bench.workloads import Run, sync

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


def conv(torch: Any, *, compiled: bool = False) -> dict[str, Run]:
    """Each layer of `CONV_LAYERS`, forward and backward; images have no gradient."""
    torch.manual_seed(0)
    return {_layer_name(*sizes): _conv_layer(torch, compiled, *sizes) for sizes in CONV_LAYERS}


def _layer_name(channels: int, size: int, outputs: int, kernel: int, stride: int) -> str:
    step = f"/{stride}" if stride > 1 else ""
    return f"{kernel}×{kernel}{step} {channels} → {outputs}, {size}²"


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
