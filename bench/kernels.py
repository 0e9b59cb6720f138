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
