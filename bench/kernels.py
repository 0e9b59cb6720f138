"""Single kernels, as `bench.workloads` has whole steps: each takes the framework as a module, and gives one iteration.

Their gradients are computed too.
"""

from __future__ import annotations

from typing import Any

from bench.workloads import Run, sync


def _attention(torch: Any, batch: int, length: int, compiled: bool) -> Run:
    """Causal attention of 8 heads of 64 features, forward and backward."""
    attend = torch.nn.functional.scaled_dot_product_attention
    torch.manual_seed(0)
    q, k, v = (torch.randn(batch, 8, length, 64, requires_grad=True) for _ in range(3))
    g = torch.randn(batch, 8, length, 64)

    def forward(*inputs: Any) -> Any:
        return attend(*inputs, is_causal=True)

    chosen = torch.compile(forward) if compiled and torch.__name__ == "torch" else forward

    def step(*inputs: Any) -> Any:
        return torch.autograd.grad(chosen(*inputs), inputs, g)

    whole = torch.compile(step) if compiled and torch.__name__ == "weft" else step

    def run() -> None:
        for gradient in whole(q, k, v):
            sync(torch, gradient)

    return run


def attention_128(torch: Any, *, compiled: bool = False) -> Run:
    return _attention(torch, 4, 128, compiled)


def attention_1024(torch: Any, *, compiled: bool = False) -> Run:
    return _attention(torch, 4, 1024, compiled)


def attention_4096(torch: Any, *, compiled: bool = False) -> Run:
    return _attention(torch, 1, 4096, compiled)
