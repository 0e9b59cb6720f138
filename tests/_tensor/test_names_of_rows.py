"""What comes out of operators, functions and layers when dims are named."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest

import weft
from weft._lazy.names import output_names
from weft.errors import DimNameError
from weft.ops._table import TABLE


def T(names: str, *shape: int) -> weft.Tensor:
    """Numbers between 0 and 1 with these names of dims; "-" is a dim without one."""
    count = math.prod(shape)
    numbers = (weft.arange(count) * 7919 % count / count * 0.8 + 0.1).reshape(shape)
    return numbers.rename(*(None if name == "-" else name for name in names.split())) if names else numbers


def integers(names: str, *shape: int) -> weft.Tensor:
    """Integers from 0 to 2, likewise."""
    return (T(names, *shape) * 3).to(weft.int64)


GIVEN: dict[str, Any] = {
    "weft": weft,
    "F": weft.nn.functional,
    "T": T,
    "integers": integers,
    "nc": T("N C", 4, 3),
    "nch": T("N C H", 2, 4, 6),
    "img": T("N C H W", 2, 4, 6, 8),
    "nte": T("N T E", 2, 5, 8),
    "square": (weft.eye(3) * 2 + 0.1).rename("R", "S"),
}


def written(result: Any) -> str:
    """The names of a result; those of several stand apart by commas."""
    if isinstance(result, weft.Tensor):
        assert len(result.names) == result.ndim
        return " ".join(name or "-" for name in result.names)
    return ", ".join(written(part) for part in result if part is not None)


NAMES = [
    # products
    ('weft.mm(nc, T("in out", 3, 2))', "N out"),
    ('nc @ T("in out", 3, 2)', "N out"),
    ('weft.matmul(img, T("in out", 8, 2))', "N C H out"),
    ('weft.bmm(T("B N D", 2, 3, 4), T("B in out", 2, 4, 5))', "B N out"),
    ('weft.mv(nc, T("D", 3))', "N"),
    ('weft.dot(T("A", 3), T("B", 3))', ""),
    ('weft.inner(nc, T("M C", 5, 3))', "N M"),
    ('weft.outer(T("A", 3), T("B", 2))', "A B"),
    ('weft.outer(T("A", 3), T("A", 3))', "A -"),
    ('weft.tensordot(nc, T("C D", 3, 2), 1)', "N D"),
    ("weft.tensordot(nc, nc, ([0], [0]))", "C -"),
    ('weft.einsum("nc,cd->nd", nc, T("in D", 3, 2))', "N D"),
    ('weft.einsum("...h,hd->...d", nch, T("in D", 6, 2))', "N C D"),
    ('weft.einsum("ij,kj->ik", nc, T("C N", 2, 3))', "N C"),
    ('weft.einsum("ii->i", square)', "-"),
    ('weft.einsum("ij->j", nc)', "C"),
    ('weft.linalg.multi_dot([nc, T("A B", 3, 4), T("D E", 4, 2)])', "N E"),
    ('weft.chain_matmul(nc, T("A B", 3, 4))', "N B"),
    ('weft.addmm(T("N out", 4, 2), nc, T("in out", 3, 2))', "N out"),
    ('weft.addmv(T("N", 4), nc, T("D", 3))', "N"),
    ('weft.addr(T("A B", 3, 2), T("A", 3), T("B", 2))', "A B"),
    ('weft.baddbmm(T("B N out", 2, 3, 5), T("B N D", 2, 3, 4), T("B in out", 2, 4, 5))', "B N out"),
    ('weft.addbmm(T("N out", 3, 5), T("B N D", 2, 3, 4), T("B in out", 2, 4, 5))', "N out"),
    ("weft.kron(nc, nc)", "- -"),
    ("weft.cross(nc, nc, dim=1)", "N C"),
    ("weft.linalg.vecdot(nc, nc)", "N"),
    ('F.linear(nc, T("out in", 5, 3), T("out", 5))', "N out"),
    ('F.linear(nc, T("", 5, 3))', "N -"),
    ('F.bilinear(nc, nc, T("out a b", 2, 3, 3), T("out", 2))', "N out"),
    # shape
    ("nc.view(4, 3)", "N C"),
    ("nc.view(2, 2, 3)", "- - C"),
    ("nc.view(4, 1, 3)", "N - C"),
    ("nc.view(1, 4, 3, 1)", "- N C -"),
    ("img.view(2, 4, 48)", "N C -"),
    ("nc.reshape(-1)", "-"),
    ("nc.ravel()", "-"),
    ("nc.view(weft.int32)", "N C"),
    ("img.flatten(1)", "N -"),
    ("img.flatten(1, 2)", "N - W"),
    ('T("N C H W", 2, 4, 1, 1).flatten(1)', "N -"),
    ('img.flatten(["C", "H"], "F")', "N F W"),
    ('nc.unflatten("N", (2, 2))', "- - C"),
    ('nc.unflatten("N", (("A", 2), ("B", 2)))', "A B C"),
    ('T("N C H", 2, 1, 1).squeeze()', "N"),
    ('T("N C H", 2, 1, 1).squeeze("C")', "N H"),
    ("nc.unsqueeze(1)", "N - C"),
    ("nc.expand(2, 4, 3)", "- N C"),
    ('weft.broadcast_to(T("C", 3), (4, 3))', "- C"),
    ('weft.broadcast_tensors(nc, T("C", 3))', "N C, - C"),
    ('nc.transpose("N", "C")', "C N"),
    ("nc.t()", "C N"),
    ("nch.mT", "N H C"),
    ('img.permute("H", "W", "N", "C")', "H W N C"),
    ("img.movedim(1, -1)", "N H W C"),
    ("nc.swapaxes(0, 1)", "C N"),
    ('nch.unfold("H", 2, 1)', "N C H -"),
    ("nc.diagonal()", "-"),
    ("img.diagonal(0, 2, 3)", "N C -"),
    ('weft.view_as_real(T("N", 3).to(weft.complex64))', "N -"),
    ('weft.view_as_complex(T("N P", 3, 2))', "N"),
    ("weft.atleast_3d(nc)", "N C -"),
    ('weft.meshgrid(T("A", 3), T("B", 2), indexing="ij")', "A B, A B"),
    ('weft.meshgrid(T("A", 3), T("B", 2), indexing="xy")', "B A, B A"),
    # parts
    ("nc[0]", "C"),
    ("nc[:, 0]", "N"),
    ("nc[1:]", "N C"),
    ("nc[None]", "- N C"),
    ("nc[..., 0]", "N"),
    ("nc[weft.tensor([0, 1])]", "N C"),
    ('nc[integers("K", 2)]', "K C"),
    ('nc[:, integers("K L", 2, 2)]', "N K L"),
    ("nc[nc > 0.5]", "-"),
    ("nc.select(0, 1)", "C"),
    ("nc.narrow(1, 0, 2)", "N C"),
    ("weft.split(nc, 2)", "N C, N C"),
    ("weft.chunk(nc, 3, 1)", "N C, N C, N C"),
    ('weft.unbind(nc, "C")', "N, N, N"),
    ("weft.tensor_split(nc, 2)", "N C, N C"),
    ('weft.index_select(nc, "C", weft.tensor([0, 1]))', "N C"),
    ('weft.gather(nc, "C", nc.argmax("C", keepdim=True))', "N C"),
    ("weft.gather(nc, 1, weft.zeros(4, 2, dtype=weft.int64))", "N C"),
    ("weft.take_along_dim(nc, nc.argsort(1), 1)", "N C"),
    ('weft.take(nc, integers("K", 2))', "K"),
    ("weft.masked_select(nc, nc > 0.5)", "-"),
    ("weft.where(nc > 0.5, nc, 0.0)", "N C"),
    ("weft.nonzero(nc)", "- -"),
    ("weft.unique(nc, dim=0, return_inverse=True, return_counts=True)", "N C, N, -"),
    ("weft.unique(nc, return_inverse=True)", "-, N C"),
    ("weft.unique_consecutive(nc, dim=1)", "N C"),
    # writes
    ('weft.index_add(nc, "N", weft.tensor([0, 1]), T("N C", 2, 3))', "N C"),
    ('weft.index_copy(nc, 0, weft.tensor([0, 1]), T("N C", 2, 3))', "N C"),
    ("weft.index_fill(nc, 0, weft.tensor([0, 1]), 1.0)", "N C"),
    ("weft.index_put(nc, (weft.tensor([0]),), weft.tensor(1.0))", "N C"),
    ('weft.scatter(nc, "C", weft.zeros(4, 2, dtype=weft.int64), 1.0)', "N C"),
    ('weft.scatter_add(nc, 1, weft.zeros(4, 2, dtype=weft.int64), T("N C", 4, 2))', "N C"),
    ("weft.masked_fill(nc, nc > 0.5, 0.0)", "N C"),
    ('weft.select_scatter(nc, T("C", 3), 0, 1)', "N C"),
    ('weft.diagonal_scatter(nc, T("", 3))', "N C"),
    # joined, repeated, moved
    ('weft.cat([nc, nc], "N")', "N C"),
    ("weft.stack([nc, nc], 1)", "N - C"),
    ("weft.hstack([nc, nc])", "N C"),
    ('weft.column_stack([T("N", 4), nc])', "N C"),
    ("weft.dstack([nc, nc])", "N C -"),
    ("weft.block_diag(nc, nc)", "- -"),
    ("nc.repeat(2, 1, 1)", "- N C"),
    ("weft.tile(nc, (2, 2))", "N C"),
    ("weft.repeat_interleave(nc, 2, dim=1)", "N C"),
    ("weft.repeat_interleave(nc, 2)", "-"),
    ('weft.flip(nc, ["C"])', "N C"),
    ('weft.roll(nc, 1, "C")', "N C"),
    ("weft.rot90(nc)", "C N"),
    ("weft.tril(nc)", "N C"),
    ("weft.diag_embed(nc)", "N - -"),
    ("F.pad(img, (1, 1))", "N C H W"),
    ('F.pad(img, (1, 1, 1, 1), mode="reflect")', "N C H W"),
    # reductions, order, statistics
    ('nc.sum("C")', "N"),
    ('nc.mean(["N", "C"])', ""),
    ('nc.amax("C", keepdim=True)', "N C"),
    ('weft.max(nc, "C")', "N, N"),
    ('weft.median(nc, "C")', "N, N"),
    ('weft.std_mean(nc, "C")', "N, N"),
    ('weft.norm(nc, dim="C")', "N"),
    ('weft.linalg.matrix_norm(T("N R C", 2, 3, 3))', "N"),
    ('weft.quantile(nc, weft.tensor([0.1, 0.5]), dim="C")', "- N"),
    ('nc.sort("C")', "N C, N C"),
    ("nc.topk(2)", "N C, N C"),
    ('nc.kthvalue(1, "C")', "N, N"),
    ('nc.mode("C")', "N, N"),
    ('nc.cumsum("N")', "N C"),
    ('nc.cummax("N")', "N C, N C"),
    ("weft.diff(nc)", "N C"),
    ("weft.trapezoid(nc)", "N"),
    ("weft.cov(nc)", "N -"),
    ('weft.cdist(nc, T("M C", 5, 3))', "N M"),
    ("weft.cdist(nc, nc)", "N -"),
    ("F.pdist(nc)", "-"),
    ("weft.histc(nc)", "-"),
    ('weft.bincount(integers("N", 4))', "-"),
    ('weft.searchsorted(T("B", 4), nc)', "N C"),
    ("F.cosine_similarity(nc, nc)", "N"),
    ("F.pairwise_distance(nc, nc, keepdim=True)", "N C"),
    ("weft.multinomial(nc, 2)", "N -"),
    ("weft.randint_like(nc, 5)", "N C"),
    ("weft.norm_except_dim(nc)", "N C"),
    # matrices
    ("weft.linalg.inv(square)", "S R"),
    ('weft.linalg.pinv(T("R C", 4, 3))', "C R"),
    ('weft.linalg.det(T("N R C", 2, 3, 3))', "N"),
    ("weft.linalg.qr(nc)", "N -, - C"),
    ('weft.linalg.qr(nc, mode="r")', "-, - C"),
    ("weft.linalg.svd(nc)", "N -, -, - C"),
    ("weft.linalg.eigh(square)", "-, R -"),
    ("weft.linalg.lu(square)", "R -, R -, - S"),
    ('weft.linalg.solve(square, T("R K", 3, 2))', "S K"),
    ('weft.linalg.solve(square, T("K S", 2, 3), left=False)', "K R"),
    ('weft.linalg.solve_triangular(square, T("R K", 3, 2), upper=True)', "S K"),
    ('weft.linalg.lstsq(T("R C", 4, 3), T("R K", 4, 2))[0]', "C K"),
    ('weft.linalg.tensorinv(T("A B C", 6, 2, 3), ind=1)', "B C A"),
    ('weft.cholesky_solve(T("R K", 3, 2), square)', "R K"),
    # layers
    ("weft.nn.Linear(3, 5)(nc)", "N -"),
    ("weft.nn.Conv2d(4, 5, 3)(img)", "N - H W"),
    ('F.conv2d(img, T("out in h w", 5, 4, 3, 3), T("out", 5))', "N out H W"),
    ('F.conv_transpose2d(img, T("in out h w", 4, 5, 3, 3))', "N out H W"),
    ("weft.nn.MaxPool2d(2, return_indices=True)(img)", "N C H W, N C H W"),
    ("weft.nn.AdaptiveAvgPool2d(1)(img)", "N C H W"),
    ("weft.nn.MaxUnpool2d(2)(*weft.nn.MaxPool2d(2, return_indices=True)(img))", "N C H W"),
    ("weft.nn.FractionalMaxPool2d(2, output_size=2)(img)", "N C H W"),
    ("weft.nn.BatchNorm2d(4)(img)", "N C H W"),
    ("weft.nn.InstanceNorm2d(4, affine=True)(img)", "N C H W"),
    ("weft.nn.GroupNorm(2, 4)(img)", "N C H W"),
    ("weft.nn.LayerNorm(8)(nte)", "N T E"),
    ("weft.nn.RMSNorm(8)(nte)", "N T E"),
    ('F.layer_norm(nte, (8,), T("E", 8))', "N T E"),
    ("weft.nn.LocalResponseNorm(2)(img)", "N C H W"),
    ("weft.nn.PReLU(4)(img)", "N C H W"),
    ("weft.nn.Dropout2d()(img)", "N C H W"),
    ("weft.nn.GLU()(nte)", "N T E"),
    ("weft.nn.Flatten()(img)", "N -"),
    ('weft.nn.Unflatten("C", (("A", 2), ("B", 2)))(img)', "N A B H W"),
    ("weft.nn.Unfold(2)(img)", "N - -"),
    ('weft.nn.Fold((6, 4), (2, 2))(T("N B L", 2, 16, 15))', "N - - -"),
    ("weft.nn.PixelShuffle(2)(img)", "N C H W"),
    ("weft.nn.Upsample(scale_factor=2)(img)", "N C H W"),
    ('F.interpolate(img, size=(3, 3), mode="bilinear")', "N C H W"),
    ('F.grid_sample(img, T("N h w xy", 2, 3, 3, 2), align_corners=False)', "N C h w"),
    ('weft.nn.Embedding(5, 4)(integers("N T", 2, 3))', "N T -"),
    ('F.embedding(integers("N T", 2, 3), T("V E", 5, 4))', "N T E"),
    ('F.embedding_bag(integers("N T", 2, 3), T("V E", 5, 4))', "N E"),
    ('F.one_hot(integers("N T", 2, 3), 5)', "N T -"),
    ("F.gumbel_softmax(nc)", "N C"),
    ("weft.nn.LSTM(8, 3, batch_first=True)(nte)", "N T -, - N -, - N -"),
    ('weft.nn.GRU(8, 3, batch_first=True)(nte, T("- N hidden", 1, 2, 3))', "N T hidden, - N hidden"),
    ("weft.nn.LSTMCell(3, 5)(nc)", "N -, N -"),
    ('weft.nn.GRUCell(3, 5)(nc, T("N hidden", 4, 5))', "N hidden"),
    ('F.scaled_dot_product_attention(nte, T("N S E", 2, 6, 8), T("N S V", 2, 6, 4))', "N T V"),
    ("F.scaled_dot_product_attention(nte, nte, nte, is_causal=True)", "N T E"),
    (
        'weft.nn.MultiheadAttention(8, 2, batch_first=True)(nte, T("N S E", 2, 6, 8), T("N S E", 2, 6, 8))',
        "N T -, N T S",
    ),
    ("weft.nn.MultiheadAttention(8, 2, batch_first=True)(nte, nte, nte)", "N T -, N T -"),
    ("weft.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(nte)", "N T E"),
    ('weft.nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)(nte, T("N S E", 2, 6, 8))', "N T E"),
    # losses
    ('F.cross_entropy(nc, integers("N", 4))', ""),
    ('F.cross_entropy(nc, integers("N", 4), reduction="none")', "N"),
    ('F.cross_entropy(img, integers("N H W", 2, 6, 8), reduction="none")', "N H W"),
    ("F.mse_loss(nc, nc)", ""),
    ('F.mse_loss(nc, nc, reduction="none")', "N C"),
    ('F.triplet_margin_loss(nc, nc, nc, reduction="none")', "N"),
    ('F.linear_cross_entropy(nc, T("K C", 5, 3), integers("N", 4), reduction="none")', "N"),
    ('weft.nn.AdaptiveLogSoftmaxWithLoss(8, 6, [2, 4], 2.0)(T("N C", 4, 8), integers("N", 4))[0]', "N"),
    ('F.ctc_loss(T("T N C", 6, 2, 4), weft.ones(2, 2).long(), (6, 6), (2, 2), reduction="none")', "N"),
]


@pytest.mark.parametrize(("expression", "names"), NAMES, ids=[expression for expression, _ in NAMES])
def test_dims_of_results_have_names(expression, names):
    assert written(eval(expression, dict(GIVEN))) == names


def test_every_operator_has_a_rule_for_names():
    assert [name for name, op in TABLE.items() if op.dims is None] == []


def test_an_operator_without_a_rule_says_what_to_do():
    without = replace(TABLE["exp"], dims=None)
    with pytest.raises(DimNameError, match=r"exp\(\) has no rule for names of dims. Please drop the names via"):
        output_names(without, [(2,)], {}, [("N",)])


@pytest.mark.parametrize("product", [weft.mm, weft.matmul, weft.linalg.multi_dot, weft.nn.functional.linear])
def test_products_whose_result_would_have_a_name_twice_are_refused(product):
    left, right = T("N C", 3, 3), T("N N1" if product is weft.nn.functional.linear else "in N", 3, 3)
    with pytest.raises(DimNameError, match="would produce output tensor with duplicate names"):
        product([left, right]) if product is weft.linalg.multi_dot else product(left, right)


def test_sizes_that_do_not_fit_are_refused_before_names():
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        weft.mm(T("N C", 3, 2), T("in N", 3, 2))
    with pytest.raises(RuntimeError, match=r"Expected 3D \(unbatched\) or 4D \(batched\) input"):
        weft.nn.functional.conv2d(T("A B C D E", 1, 1, 1, 1, 1), T("", 1, 1, 1, 1))


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: weft.nn.functional.layer_norm(x, (8,)).sum(),
        lambda x: weft.nn.functional.scaled_dot_product_attention(x, x, x).sum(),
        lambda x: weft.nn.MultiheadAttention(8, 2, batch_first=True)(x, x, x)[0].sum(),
        lambda x: weft.nn.LSTM(8, 3, batch_first=True)(x)[0].sum(),
        lambda x: x.flatten(1).reshape(4, 20).transpose(0, 1)[weft.tensor([0, 2])].sum(),
        lambda x: x.gather("E", x.argmax("E", keepdim=True)).sum(),
        lambda x: weft.meshgrid(x[0, 0], x[1, 0], indexing="ij")[0].sum(),
    ],
)
def test_gradients_have_the_names_of_what_they_belong_to(loss):
    x = T("N T E", 2, 5, 8).requires_grad_()
    (grad,) = weft.autograd.grad(loss(x), x)
    assert grad is not None
    assert grad.names == x.names


def _attended(query="N T E", source="N S E", **masks):
    layer = weft.nn.MultiheadAttention(4, 2, batch_first=True)
    key = T(source, 2, 3, 4)
    return layer(T(query, 2, 3, 4), key, key, **masks)


def test_attention_layers_compare_names():
    output, weights = _attended()
    assert (written(output), written(weights)) == ("N T -", "N T S")
    assert written(_attended("- - -")) == "N - -, N - S"
    plain, padding = weft.zeros(3, 3, dtype=weft.bool), weft.zeros(2, 3, dtype=weft.bool)
    assert written(_attended(attn_mask=plain.rename("T", "S"), key_padding_mask=padding.rename("N", "S"))[1]) == "N T S"
    assert written(_attended(source="N T E", attn_mask=plain.rename("T", "S"))[0]) == "N T -"  # to itself
    for options, what in (
        ({"source": "M S E"}, "batch to have one name, but it is 'N' (query, which has dims ['N', 'T', 'E']) and 'M'"),
        ({"attn_mask": plain.rename("S", "T")}, "queries"),
        ({"attn_mask": plain.rename("T", "Z")}, "keys"),
        ({"source": "N T E", "attn_mask": plain.rename("S", "T")}, "queries"),
        ({"key_padding_mask": padding.rename("S", "N")}, "batch"),
        ({"key_padding_mask": padding.rename("N", "T")}, "keys"),
    ):
        with pytest.raises(DimNameError, match=re.escape(f"Expected the dim of the {what}")):
            _attended(**options)
