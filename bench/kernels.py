"""Single kernels, as `workloads` has whole programs: here a workload is many runs by name, one for each size."""

from __future__ import annotations

import math
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
PRODUCTS = [
    # shapes of both factors
    ((256, 256), (256, 256)),
    ((512, 512), (512, 512)),
    ((1024, 1024), (1024, 1024)),
    ((64, 128, 128), (64, 128, 32)),
]


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
                for result in call():
                    sync(torch, result)

        return run

    def gradients(factors: list[tuple[Any, Any]]) -> Run:
        flat = [x for pair in factors for x in pair]
        cotangents = [torch.randn(a.shape[0], b.shape[0]) for a, b in factors]

        def layers() -> list[Any]:
            return [torch.nn.functional.linear(a, b) for a, b in factors]

        call = torch.compile(layers) if compiled and torch.__name__ == "torch" else layers

        def step() -> Any:
            return torch.autograd.grad(call(), flat, cotangents)

        whole = torch.compile(step) if compiled and torch.__name__ == "weft" else step

        def run() -> None:
            for result in whole():
                sync(torch, result)

        return run

    linear = [pairs((rows, inputs), (outputs, inputs)) for rows, inputs, outputs in LAYERS]
    trained = [pairs((rows, inputs), (outputs, inputs), grad=True) for rows, inputs, outputs in LAYERS]
    runs = [
        *(forward(torch.nn.functional.linear, factors) for factors in linear),
        *(gradients(factors) for factors in trained),
        *(forward(torch.matmul, pairs(*shapes)) for shapes in PRODUCTS),
    ]
    return dict(zip(gemm_names(), runs, strict=True))
