"""What is not compared as it stands, each with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.oracle.cases import DTYPES, Case

UNDEFINED = frozenset(
    {
        "bernoulli",
        "empty",
        "empty_like",
        "multinomial",
        "new_empty",
        "new_empty_strided",
        "normal",
        "normal_in_place",
        "normal_number_mean",
        "rand_like",
        "randint",
        "randint_like",
        "randn",
        "randn_like",
        "nn_functional_alpha_dropout",
        "nn_functional_dropout",
        "nn_functional_dropout2d",
        "nn_functional_dropout3d",
        "nn_functional_feature_alpha_dropout_with_train",
        "nn_functional_rrelu",
        "uniform",
        "exponential",
        "cauchy",
        "geometric",
        "log_normal",
        "empty_permuted",
        "empty_strided",
        "nn_functional_multi_head_attention_forward",
        "nn_functional_fractional_max_pool2d",
        "nn_functional_fractional_max_pool3d",
    }
)
"""Operators whose values are drawn at random or not initialised: dtypes and shapes are compared."""

SIGN_FREE = frozenset({"linalg_eigh", "linalg_qr", "linalg_svd", "qr", "svd"})
"""Decompositions that are unique up to a sign (or phase) of each vector: absolute values are compared."""

WIDER: dict[str, float] = {"nn.CTCLoss": 10}
"""Operators whose tolerance is scaled, where both results are equally far from the exact one."""

REORDERED: dict[str, Callable[..., tuple[Any, ...]]] = {
    "einsum": lambda operands, equation: (equation, operands),
    "nn.functional.embedding": lambda weight, indices: (indices, weight),
    "polygamma": lambda x, n: (n, x),
    "special.polygamma": lambda x, n: (n, x),
    "where": lambda x, condition, other: (condition, x, other),
}
"""Functions whose samples come in another order of arguments: how the database calls them."""


WRAPPED = frozenset(
    {
        "linalg_lstsq_grad_oriented",
        "linalg_pinv_singular",
        "pca_lowrank",
        "svd_lowrank",
    }
)
"""Entries of the database that call a function on something computed from their samples."""

RENAMED = {"normal_in_place": "normal_"}
"""Entries of the database that call a method of another name."""


@dataclass(frozen=True)
class Known:
    """A difference that stays: of an operator, where the fault's text has `part`."""

    op: str
    reason: str
    dtypes: tuple[str, ...] = DTYPES
    part: str = ""


_TIES = "which of several equal elements is reported is not defined"
_FEW_VALUES = ("int64", "bool", "bfloat16")

KNOWN: tuple[Known, ...] = (
    *(Known(op, _TIES, _FEW_VALUES, "output[1] differs") for op in ("kthvalue", "mode", "sort", "topk")),
    Known("as_strided_scatter", "PyTorch gives the gradient of the wrong part to the input", part="gradient 0"),
    Known("argsort", _TIES, _FEW_VALUES, "output differs"),
    Known("logcumsumexp", "imaginary parts are equal up to whole turns", ("complex64",), "output differs"),
    Known("cov", "PyTorch adds up float32 weights of float64 observations in float32", ("float64",), "differs"),
    *(
        Known("linalg_svd", "singular vectors of the null space are any basis of it", part=f"output[{at}] differs")
        for at in (0, 2)
    ),
    Known("linalg_pinv_hermitian", "the samples are not Hermitian, and which part of them counts is not defined"),
    Known("linalg_lstsq", "empty residuals take part in no gradient", part="GradientError"),
    *(
        Known(op, "PyTorch gives the triangle that is not read a gradient, too", ("float64", "float32"), "gradient")
        for op in ("cholesky_inverse", "cholesky_solve")
    ),
    *(
        Known(
            op, "PyTorch's values for large numbers are off by 1e-7 (mpmath agrees with Weft)", ("float64",), "output"
        )
        for op in ("special_bessel_j0", "special_bessel_y1")
    ),
    Known("matrix_exp", "PyTorch computes it in bfloat16, and overflows", ("bfloat16",), "output differs"),
    Known("histc", "PyTorch places the edges of bfloat16 bins in bfloat16", ("bfloat16",), "differs"),
    *(
        Known(op, "PyTorch places the points of a grid in bfloat16", ("bfloat16",), "differs")
        for op in ("grid_sampler_2d", "grid_sampler_3d", "nn_functional_grid_sample")
    ),
    Known("nn_functional_local_response_norm", "PyTorch averages integer squares in integers", ("int64",)),
    Known("nn_functional_hinge_embedding_loss", "PyTorch rounds each loss before it adds up", ("bfloat16",), "output"),
    Known("div_trunc_rounding", "PyTorch rounds quotients before it cuts: 386 / 3 gives 129", ("bfloat16",), "differs"),
)


def is_undefined(case: Case) -> bool:
    """Whether only dtypes and shapes of a case can be compared."""
    return case.op in UNDEFINED or bool(case.kwargs["dict"].get("dropout_p"))


def reason_for(case: Case, fault: str) -> str:
    """Why a fault is known; empty when it is not."""
    for known in KNOWN:
        if known.op == case.op and case.dtype in known.dtypes and known.part in fault:
            return known.reason
    return ""


_INTERNAL = "an internal function of ATen"
_OTHER_TYPE = "an element type that is not there"
_MASKED = "masked tensors"
_SPARSE = "sparse tensors"

ABSENT: dict[str, str] = {
    **dict.fromkeys(
        (
            "_batch_norm_with_update", "_chunk_cat", "_native_batch_norm_legit", "_softmax_backward_data",
            "_unsafe_masked_index", "_unsafe_masked_index_put_accumulate", "max_pool2d_with_indices_backward",
            "native_dropout_backward", "slice", "torch_ops_aten__efficient_attention_forward",
            "torch_ops_aten__flash_attention_forward", "torch_ops_aten__safe_softmax_default",
        ),
        _INTERNAL,
    ),
    **dict.fromkeys(("chalf", "torch__scaled_mm", "torch__scaled_mm_v2"), _OTHER_TYPE),
    **dict.fromkeys(("sparse_mm_reduce", "sparse_sampled_addmm", "to_sparse"), _SPARSE),
    **dict.fromkeys(
        ("linalg_lstsq_grad_oriented", "linalg_pinv_singular", "pca_lowrank", "svd_lowrank"),
        "the entry calls a function on something computed from its samples; the function is there",
    ),
    **dict.fromkeys(
        ("_segment_reduce_lengths", "_segment_reduce_offsets"), "a prototype of PyTorch's; `scatter_reduce` does it"
    ),
    "_upsample_bilinear2d_aa": "an internal function of ATen; `interpolate` has `antialias`",
}  # fmt: skip
"""Entries of the database without a counterpart here, and why; those of one family by their prefix, below."""
_ABSENT_FAMILIES = {"masked_": _MASKED, "jiterator_": "kernels in CUDA's C++, which PyTorch has on no other device"}


def reason_for_absence(name: str) -> str:
    """Why an entry of the database has no counterpart; empty when that is not known."""
    family = next((reason for prefix, reason in _ABSENT_FAMILIES.items() if name.startswith(prefix)), "")
    return ABSENT.get(name, family)


@dataclass(frozen=True)
class KnownRefusal:
    """A wrong call that is refused otherwise, or not at all: of an operator, where the fault's text has `part`."""

    op: str
    reason: str
    part: str = ""


_CASTS = "`out=` of another type is cast to, as by all operators"

KNOWN_REFUSALS: tuple[KnownRefusal, ...] = (
    *(KnownRefusal(op, _CASTS, "out") for op in ("aminmax", "amax", "amin", "complex", "gather", "multinomial")),
    KnownRefusal("bernoulli", "methods take `out=`, too", "invalid combination"),
    KnownRefusal("arange", "the type of `out=` does not take part in the length", "out"),
    *(
        KnownRefusal(op, "an `out=` that overlaps is written after everything has been read", "unsupported operation")
        for op in ("kthvalue", "masked_select", "bernoulli", "cat", "gather", "index_select", "take")
    ),
    KnownRefusal("cat", "views have no storage of their own that could be resized", "storage that is not resizable"),
    KnownRefusal("narrow_copy", "it is refused as `narrow` is", "narrow"),
    KnownRefusal("cov", "types are looked at before shapes", "one or fewer dimensions"),
    KnownRefusal("nn_functional_multi_margin_loss", "types are looked at before `reduction`", "reduction"),
)


def reason_for_refusal(op: str, fault: str) -> str:
    """Why a wrong call of an operator is refused otherwise; empty when that is not known."""
    return next((known.reason for known in KNOWN_REFUSALS if known.op == op and known.part in fault), "")
