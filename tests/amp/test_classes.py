"""Every operator of PyTorch's lists, in a region of each type of device, with the class that its list names."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import weft as torch
from tests.amp.regions import region

F = torch.nn.functional
L = torch.linalg

ENTRIES = [
    (row["device"], "lower" if row["policy"] in ("lower_precision", "bfloat16") else row["policy"], row["op"])
    for row in csv.DictReader((Path(__file__).parent / "ops.csv").read_text(encoding="utf-8").splitlines())
    if not row["op"].startswith("#")
]
FURTHER = {
    "float32": """linalg_matrix_norm linalg_cond linalg_matrix_rank linalg_solve linalg_cholesky linalg_svdvals
        linalg_eigvals linalg_eigvalsh linalg_inv linalg_householder_product linalg_tensorinv linalg_tensorsolve geqrf
        qr svd triangular_solve fractional_max_pool2d fractional_max_pool3d adaptive_max_pool3d linalg_qr
        linalg_cholesky_ex linalg_svd linalg_eig linalg_eigh linalg_lstsq linalg_inv_ex""",
    "promote": "cat stack index_copy",
}
"""What the CPU's list has after the place where the specification's copy of it breaks off."""
LATER = {
    ("cpu", "lower"): "prelu",
    ("cpu", "float32"): """binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy hinge_embedding_loss
        huber_loss l1_loss margin_ranking_loss multi_margin_loss nll_loss poisson_nll_loss smooth_l1_loss
        soft_margin_loss triplet_margin_loss""",
    ("cuda", "float32"): "huber_loss logsumexp rms_norm interpolate",
}
"""What PyTorch's lists have had since."""
LISTED_FOR_CUDA = len([1 for device, _, _ in ENTRIES if device == "cuda"])
ENTRIES += [("cpu", policy, op) for policy, names in FURTHER.items() for op in names.split()]
ENTRIES += [(device, policy, op) for (device, policy), names in LATER.items() for op in names.split()]

NOT_HERE = {"fft_fft", "fft_ifft", "fft_fft2", "stft", "_convolution", "_grid_sampler_2d_cpu_fallback", "__rdiv__"}
"""Entries without a function of this name: transforms, which Weft has not, and PyTorch's own parts."""


def t(*shape: int) -> Any:
    """Numbers from 0.1 to 0.9, the same in every call."""
    count = 1
    for size in shape:
        count *= size
    return (torch.arange(count) % 9 * 0.1 + 0.1).reshape(shape)


def square(n: int = 3) -> Any:
    return torch.eye(n) * 2 + t(n, n) * 0.1


def positive(n: int = 3) -> Any:
    return torch.eye(n) * 3 + 0.1


def places(*shape: int) -> Any:
    return torch.zeros(shape, dtype=torch.int64)


Case = tuple[Callable[..., Any], list[Any]]
"""A function, and the tensors that it is called with; those of floating type are what is cast."""

LABELS = torch.tensor([0, 2])
CASES: dict[str, Case] = {
    "__matmul__": (lambda a, b: a @ b, [t(2, 3), t(3, 2)]),
    "addbmm": (torch.addbmm, [t(2, 2), t(4, 2, 3), t(4, 3, 2)]),
    "addmm": (torch.addmm, [t(2, 2), t(2, 3), t(3, 2)]),
    "addmv": (torch.addmv, [t(2), t(2, 3), t(3)]),
    "addr": (torch.addr, [t(2, 3), t(2), t(3)]),
    "baddbmm": (torch.baddbmm, [t(4, 2, 2), t(4, 2, 3), t(4, 3, 2)]),
    "bmm": (torch.bmm, [t(4, 2, 3), t(4, 3, 2)]),
    "chain_matmul": (torch.chain_matmul, [t(2, 3), t(3, 2), t(2, 2)]),
    "multi_dot": (lambda *x: L.multi_dot(x), [t(2, 3), t(3, 2), t(2, 2)]),
    **{f"conv{n}d": (getattr(F, f"conv{n}d"), [t(1, 2, *[4] * n), t(2, 2, *[2] * n), t(2)]) for n in (1, 2, 3)},
    **{
        f"conv_transpose{n}d": (getattr(F, f"conv_transpose{n}d"), [t(1, 2, *[3] * n), t(2, 2, *[2] * n), t(2)])
        for n in (1, 2, 3)
    },
    "linear": (F.linear, [t(2, 3), t(4, 3), t(4)]),
    "matmul": (torch.matmul, [t(2, 3), t(3, 2)]),
    "mm": (torch.mm, [t(2, 3), t(3, 2)]),
    "mv": (torch.mv, [t(2, 3), t(3)]),
    "huber_loss": (F.huber_loss, [t(2, 3), t(2, 3) + 1]),
    "logsumexp": (lambda x: torch.logsumexp(x, 1), [t(2, 3)]),
    "rms_norm": (lambda x: F.rms_norm(x, (3,)), [t(2, 3)]),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), [t(1, 1, 2, 2)]),
    "prelu": (F.prelu, [t(2, 3) - 0.5, t(3)]),
    "LSTMCell": (lambda *x: torch.lstm_cell(x[0], x[1:3], *x[3:]), [t(2, 3), t(2, 2), t(2, 2), t(8, 3), t(8, 2)]),
    "GRUCell": (torch.gru_cell, [t(2, 3), t(2, 2), t(6, 3), t(6, 2)]),
    "RNNCell": (torch.rnn_tanh_cell, [t(2, 3), t(2, 2), t(2, 3), t(2, 2)]),
    "__pow__": (lambda x: x**2.5, [t(3)]),
    "__rpow__": (lambda x: 2.5**x, [t(3)]),
    "__rtruediv__": (lambda x: 1.5 / x, [t(3)]),
    **{
        name: (getattr(torch, name), [t(3)])
        for name in ("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log1p", "log2", "reciprocal",
                     "rsqrt", "sinh", "tan", "sum", "prod")
    },
    "pow": (torch.pow, [t(3), t(3)]),
    "cumprod": (lambda x: torch.cumprod(x, 0), [t(3)]),
    "cumsum": (lambda x: x.cumsum(0), [t(3)]),
    "norm": (torch.norm, [t(3)]),
    "normalize": (F.normalize, [t(2, 3)]),
    "renorm": (lambda x: torch.renorm(x, 2, 0, 1.0), [t(2, 3)]),
    "dist": (torch.dist, [t(3), t(3)]),
    "cdist": (torch.cdist, [t(2, 3), t(4, 3)]),
    "pdist": (F.pdist, [t(4, 3)]),
    "softplus": (F.softplus, [t(3)]),
    "softmax": (lambda x: F.softmax(x, 0), [t(3)]),
    "softmin": (lambda x: F.softmin(x, 0), [t(3)]),
    "log_softmax": (lambda x: F.log_softmax(x, 0), [t(3)]),
    "group_norm": (lambda x, *p: F.group_norm(x, 2, *p), [t(2, 4, 3), t(4), t(4)]),
    "layer_norm": (lambda x, *p: F.layer_norm(x, (3,), *p), [t(2, 3), t(3), t(3)]),
    "binary_cross_entropy": (F.binary_cross_entropy, [t(3), t(3)]),
    "binary_cross_entropy_with_logits": (F.binary_cross_entropy_with_logits, [t(3), t(3)]),
    "cosine_embedding_loss": (lambda a, b: F.cosine_embedding_loss(a, b, torch.tensor([1, -1])), [t(2, 3), t(2, 3)]),
    "cosine_similarity": (F.cosine_similarity, [t(2, 3), t(2, 3)]),
    "cross_entropy": (lambda x: F.cross_entropy(x, LABELS), [t(2, 3)]),
    "hinge_embedding_loss": (lambda x: F.hinge_embedding_loss(x, torch.tensor([1, -1])), [t(2)]),
    "kl_div": (lambda a, b: F.kl_div(a, b, reduction="sum"), [t(3), t(3)]),
    "l1_loss": (F.l1_loss, [t(3), t(3)]),
    "margin_ranking_loss": (lambda a, b: F.margin_ranking_loss(a, b, torch.tensor([1, -1])), [t(2), t(2)]),
    "mse_loss": (F.mse_loss, [t(3), t(3)]),
    "multilabel_margin_loss": (lambda x: F.multilabel_margin_loss(x, torch.tensor([[0, -1, 1]])), [t(1, 3)]),
    "multi_margin_loss": (lambda x: F.multi_margin_loss(x, LABELS), [t(2, 3)]),
    "nll_loss": (lambda x: F.nll_loss(x, LABELS), [t(2, 3)]),
    "poisson_nll_loss": (F.poisson_nll_loss, [t(3), t(3)]),
    "smooth_l1_loss": (F.smooth_l1_loss, [t(3), t(3)]),
    "soft_margin_loss": (F.soft_margin_loss, [t(3), t(3)]),
    "triplet_margin_loss": (F.triplet_margin_loss, [t(2, 3), t(2, 3), t(2, 3)]),
    "addcdiv": (torch.addcdiv, [t(3), t(3), t(3)]),
    "addcmul": (torch.addcmul, [t(3), t(3), t(3)]),
    "atan2": (torch.atan2, [t(3), t(3)]),
    "bilinear": (F.bilinear, [t(2, 3), t(2, 3), t(4, 3, 3), t(4)]),
    "cross": (torch.cross, [t(2, 3), t(2, 3)]),
    "dot": (torch.dot, [t(3), t(3)]),
    "grid_sample": (lambda x, g: F.grid_sample(x, g, align_corners=False), [t(1, 1, 3, 3), t(1, 2, 2, 2)]),
    "index_put": (lambda x, v: torch.index_put(x, (torch.tensor([0]),), v), [t(3), t(1)]),
    "scatter_add": (lambda x, s: torch.scatter_add(x, 0, places(1), s), [t(3), t(1)]),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 1), [t(2, 3), t(3, 2)]),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), [t(1, 1, 2, 2, 2)]),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 1), [t(1, 1, 2, 2, 2)]),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), [t(1, 1, 2, 2, 2)]),
    "adaptive_max_pool3d": (lambda x: F.adaptive_max_pool3d(x, 1), [t(1, 1, 2, 2, 2)]),
    "fractional_max_pool2d": (lambda x: F.fractional_max_pool2d(x, 2, 1), [t(1, 1, 3, 3)]),
    "fractional_max_pool3d": (lambda x: F.fractional_max_pool3d(x, 2, 1), [t(1, 1, 3, 3, 3)]),
    "max_unpool2d": (lambda x: F.max_unpool2d(x, places(1, 1, 1, 1), 2), [t(1, 1, 1, 1)]),
    "max_unpool3d": (lambda x: F.max_unpool3d(x, places(1, 1, 1, 1, 1), 2), [t(1, 1, 1, 1, 1)]),
    **{
        f"{'grid_sampler' if n is None else f'grid_sampler_{n}d'}": (
            lambda x, g, n=n: getattr(torch, "grid_sampler" if n is None else f"grid_sampler_{n}d")(x, g, 0, 0, False),
            [t(1, 1, *[3] * (n or 2)), t(1, *[2] * (n or 2), n or 2)],
        )
        for n in (None, 2, 3)
    },
    **{
        f"{name}_pad{n}d": (lambda x, n=n, mode=mode: F.pad(x, (1, 1) * n, mode=mode), [t(1, 1, *[3] * n)])
        for name, mode, n in (
            ("reflection", "reflect", 1), ("reflection", "reflect", 2),
            ("replication", "replicate", 1), ("replication", "replicate", 2), ("replication", "replicate", 3),
        )
    },
    "polar": (lambda a, b: torch.polar(a, b).real, [t(3), t(3)]),
    "view_as_complex": (lambda x: torch.view_as_complex(x).real, [t(3, 2)]),
    "quantile": (lambda x: torch.quantile(x, 0.5), [t(3)]),
    "nanquantile": (lambda x: torch.nanquantile(x, 0.5), [t(3)]),
    "trace": (torch.trace, [square()]),
    "ctc_loss": (
        lambda x: F.ctc_loss(x, torch.tensor([[1, 2]]), torch.tensor([4]), torch.tensor([2])),
        [F.log_softmax(t(4, 1, 3), 2)],
    ),
    "cholesky": (torch.cholesky, [positive()]),
    "cholesky_inverse": (torch.cholesky_inverse, [positive()]),
    "cholesky_solve": (torch.cholesky_solve, [t(3, 1), positive()]),
    "inverse": (torch.inverse, [square()]),
    "lu_solve": (lambda b, a: torch.lu_solve(b, a, torch.tensor([1, 2, 3], dtype=torch.int32)), [t(3, 1), square()]),
    "orgqr": (torch.orgqr, [square(), t(3)]),
    "ormqr": (torch.ormqr, [square(), t(3), square()]),
    "pinverse": (torch.pinverse, [square()]),
    "qr": (torch.qr, [square()]),
    "svd": (torch.svd, [square()]),
    "geqrf": (torch.geqrf, [square()]),
    "triangular_solve": (torch.triangular_solve, [t(3, 1), square()]),
    **{
        f"linalg_{name}": (getattr(L, name), [positive()])
        for name in ("matrix_norm", "cond", "cholesky", "svdvals", "eigvalsh", "inv", "qr", "cholesky_ex", "svd",
                     "eigh", "inv_ex")
    },
    "linalg_matrix_rank": (L.matrix_rank, [square()]),
    "linalg_eigvals": (lambda x: L.eigvals(x).real, [square()]),
    "linalg_eig": (lambda x: L.eig(x)[0].real, [square()]),
    "linalg_solve": (L.solve, [square(), t(3, 1)]),
    "linalg_lstsq": (L.lstsq, [square(), t(3, 1)]),
    "linalg_householder_product": (L.householder_product, [square(), t(3)]),
    "linalg_tensorinv": (lambda x: L.tensorinv(x.reshape(3, 3), 1), [square()]),
    "linalg_tensorsolve": (L.tensorsolve, [square(), t(3)]),
    "cat": (lambda *x: torch.cat(x), [t(3), t(3)]),
    "stack": (lambda *x: torch.stack(x), [t(3), t(3)]),
    "index_copy": (lambda x, s: torch.index_copy(x, 0, places(1), s), [t(3), t(1)]),
}  # fmt: skip

INTEGER = {"linalg_matrix_rank"}
"""Operators whose results have no floating type: that they take these inputs is all there is to see."""

ELSEWHERE = {
    # composed of listed operators: through them it is lower on the CPU as well
    "__matmul__": "lower", "chain_matmul": "lower", "multi_dot": "lower", "tensordot": "lower",
    # one program here, which lowers its products everywhere
    "LSTMCell": "lower", "GRUCell": "lower", "RNNCell": "lower",
    "grid_sample": "float32", "grid_sampler": "promote", "grid_sampler_2d": "promote", "grid_sampler_3d": "promote",
    "cat": "promote", "stack": "promote", "pdist": "float32", "linalg_matrix_norm": "float32",
    "binary_cross_entropy": "banned",
}  # fmt: skip
"""The class on the other type of device of operators that one list alone names, where it is not to be left alone."""

OF: dict[tuple[str, str], str] = {(device, op): policy for device, policy, op in ENTRIES if op not in NOT_HERE}
for _, _, _op in ENTRIES:
    for _device in ("cpu", "cuda"):
        if _op not in NOT_HERE:
            OF.setdefault((_device, _op), ELSEWHERE.get(_op, "none"))


def types_of(result: Any) -> set[Any]:
    results = result if isinstance(result, tuple) else (result,)
    return {x.dtype for x in results if isinstance(x, torch.Tensor) and x.is_floating_point()}


def run(op: str, *types: Any) -> set[Any]:
    """The types of an operator's results, given those of its floating inputs, the last for all others."""
    function, inputs = CASES[op]
    kinds = [*types, *[types[-1]] * len(inputs)]
    return types_of(function(*(x.to(kind) for x, kind in zip(inputs, kinds, strict=False))))


def test_every_entry_has_a_case():
    assert {op for _, _, op in ENTRIES} - NOT_HERE == set(CASES)
    assert LISTED_FOR_CUDA == 84


@pytest.mark.parametrize(
    ("device", "lower"), [("cpu", torch.bfloat16), ("cuda", torch.float16), ("xla", torch.bfloat16)]
)
@pytest.mark.parametrize("op", sorted(CASES))
def test_an_operator_has_the_class_that_its_list_names(device, lower, op):
    policy = OF["cpu" if device == "cpu" else "cuda", op]
    with region(device):
        if op in INTEGER:
            assert policy == "none" or run(op, lower) == set()
        elif policy == "lower":
            assert run(op, torch.float32) == {lower}
            assert run(op, lower) == {lower}
        elif policy == "float32":
            assert run(op, lower) == {torch.float32}
            assert run(op, torch.float32) == {torch.float32}
        elif policy == "promote":
            assert run(op, lower) == {lower}
            assert run(op, lower, torch.float32) == {torch.float32} or len(CASES[op][1]) == 1
            assert run(op, torch.float32) == {torch.float32}
        elif policy == "banned":
            with pytest.raises(RuntimeError, match=r"^torch\.nn\.functional\.binary_cross_entropy and torch"):
                run(op, torch.float32)
        else:
            assert run(op, torch.float32) == {torch.float32}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("op", sorted(set(CASES) - INTEGER))
def test_float64_is_never_cast(device, op):
    if OF[device, op] == "banned":
        return
    with region(device):
        assert run(op, torch.float64) == {torch.float64}
