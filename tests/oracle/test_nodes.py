"""Operators' nodes have PyTorch's names, on samples of PyTorch's operator database."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle import replay
from tests.oracle.cases import Case, decode

samples = pytest.importorskip("tests.oracle.samples", reason="needs torch", exc_type=ImportError)
torch = pytest.importorskip("torch")

pytestmark = pytest.mark.oracle

_ENTRIES = {
    name: entry
    for name, entry in samples.entries().items()
    if entry.supports_autograd and torch.float64 in entry.supported_dtypes("cpu") and samples.targets_of(entry)
}

COMPOSED = frozenset(
    """
__rmatmul__ __rmod__ __rsub__ alias_copy as_strided_copy as_strided_scatter cholesky chunk clamp clamp_max
clamp_min combinations corrcoef cov cumulative_trapezoid diag diagonal_copy diagonal_scatter diff einsum
expand_copy fft_fft fft_ifft fft_ihfft fft_ihfft2 fft_ihfftn fliplr flipud fmod index_fill index_reduce_amax
index_reduce_amin index_reduce_mean index_reduce_prod inner kron linalg_cond linalg_lstsq linalg_lu_solve
linalg_matrix_norm linalg_matrix_power linalg_multi_dot linalg_tensorinv linalg_vecdot logdet lu_solve lu_unpack
masked_fill masked_select matmul max_reduction_no_dim mean median min_reduction_no_dim msort nanmean nanmedian
nanquantile narrow_copy nn_functional_adaptive_avg_pool1d nn_functional_adaptive_max_pool1d
nn_functional_alpha_dropout nn_functional_avg_pool1d nn_functional_bilinear nn_functional_conv1d
nn_functional_conv2d nn_functional_conv3d nn_functional_conv_transpose1d nn_functional_conv_transpose2d
nn_functional_conv_transpose3d nn_functional_cosine_embedding_loss nn_functional_cosine_similarity
nn_functional_cross_entropy nn_functional_ctc_loss nn_functional_dropout3d
nn_functional_feature_alpha_dropout_with_train nn_functional_gaussian_nll_loss nn_functional_grid_sample
nn_functional_hinge_embedding_loss nn_functional_instance_norm nn_functional_interpolate_area
nn_functional_interpolate_bicubic nn_functional_interpolate_bilinear nn_functional_interpolate_linear
nn_functional_interpolate_nearest nn_functional_interpolate_nearest-exact nn_functional_interpolate_trilinear
nn_functional_kl_div nn_functional_l1_loss nn_functional_linear nn_functional_linear_cross_entropy
nn_functional_local_response_norm nn_functional_margin_ranking_loss nn_functional_max_pool1d
nn_functional_max_unpool1d nn_functional_max_unpool1d_grad nn_functional_max_unpool2d
nn_functional_max_unpool2d_grad nn_functional_max_unpool3d nn_functional_max_unpool3d_grad
nn_functional_multi_head_attention_forward nn_functional_multilabel_soft_margin_loss nn_functional_normalize
nn_functional_pad_circular nn_functional_pad_reflect nn_functional_pad_replicate
nn_functional_pad_replicate_negative nn_functional_pairwise_distance nn_functional_pdist
nn_functional_poisson_nll_loss nn_functional_rms_norm nn_functional_scaled_dot_product_attention
nn_functional_softsign nn_functional_tanhshrink nn_functional_triplet_margin_loss
nn_functional_upsample_bilinear nn_functional_upsample_nearest norm_nuc normal normal_number_mean ormqr
permute_copy quantile remainder repeat_interleave round_decimals_0 round_decimals_3 round_decimals_neg_3
select_scatter slice_scatter sort special_ndtr split split_list_args split_with_sizes split_with_sizes_copy
squeeze squeeze_copy squeeze_multiple stft sum sum_to_size t_copy tensordot to transpose_copy trapezoid trapz
triangular_solve unbind unbind_copy unfold_copy unsafe_chunk unsafe_split unsqueeze_copy view_copy zero_
""".split()
)
"""Entries whose last operator is another one here, as one of the two is composed, or whose overloads are one row."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in _ENTRIES if name not in COMPOSED])
def test_names_of_nodes(name: str):
    entry, forms = _ENTRIES[name], samples.targets_of(_ENTRIES[name])
    form = "function" if "function" in forms else "method"
    for sample in samples._samples(entry, "float64")[:3] if form in forms else ():
        case = samples._answered(Case(name, form, forms[form], "float64"), entry, sample)
        if case is not None:
            assert _ours(case) == _theirs(entry, form, sample), case.label


def _ours(case: Case) -> list[str]:
    args, kwargs = [
        decode(each, lambda x: replay._decoded(x, arrays=case.arrays, leaves=[])) for each in (case.args, case.kwargs)
    ]
    results = replay._callable(case)(*args, **kwargs)
    return [type(x.grad_fn).__name__ for x in replay._flowing(case.outputs, results)]


def _theirs(entry: Any, form: str, sample: Any) -> list[str]:
    call = entry.op if form == "function" else entry.method_variant or entry.op
    flowing: list[Any] = []
    samples.encode(call(sample.input, *sample.args, **sample.kwargs), lambda x: samples._note(x, flowing))
    return [type(x.grad_fn).__name__ for x in flowing]
