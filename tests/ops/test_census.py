"""Numbers that programs vary in loops are inputs of programs: a thousand values have one signature.

A number that is static makes a signature, and a program, for each of its values. So every static number of the operator
table has its reason here, and calls with many numbers are counted.
"""

from __future__ import annotations

import re

import pytest

import weft
from weft._lazy import infer
from weft.nn import functional as F
from weft.ops._kinds import Kind
from weft.ops._table import TABLE

_SHAPE = "it gives the result its shape, or that of what is computed on the way"
_DIMS = "a dim, or one of a few ways"
_LAYOUT = "where elements lie, as a shape is: the result is known by it"
_ALGORITHM = "it chooses between algorithms"
_KERNEL = "an attribute of the kernels, and one number in a whole model"
_TOPOLOGY = "which processes take part: part of the program that they run together"
_OPTION = "an option of a solver or of a window, which programs do not vary"

REASONS = {
    _SHAPE: (
        "size sizes shape normalized_shape output_size kernel_size pad repeats length num_samples num_classes "
        "n_classes bins row col N r output_padding padding stride dilation longest count groups num_groups "
        "upscale_factor downscale_factor diff.n window.step slice_dim.step tile.dims diag.diagonal diagflat.offset "
        "pooled_height pooled_width batch_size channels height width sampling_ratio stride_h stride_w pad_h pad_w "
        "dilation_h dilation_w offset_groups diag_embed.offset tril_indices.offset triu_indices.offset topk.k "
        "local_response_norm.size"
    ),
    _DIMS: (
        "dim dim1 dim2 dims_a dims_b whole_dims spec age interpolation_mode padding_mode rot90.k hash_tensor.mode "
        "multi_margin_loss.p round.decimals"
    ),
    _LAYOUT: "strided.stride interpolate_to.scales",
    _ALGORITHM: ("p ord norm_type pow_number.exponent matrix_power.n polygamma.n mvlgamma.p muon_step.ns_steps"),
    _KERNEL: "attention.scale attention_block.scale attention_block_backward.scale attention_dropout.scale dropout_p",
    _TOPOLOGY: "root pairs groups",
    _OPTION: "extreme_pairs.niter cosine_window.coefficients",
}
_REASON_OF = {name: reason for reason, names in REASONS.items() for name in names.split()}


def static_numbers():
    for row in TABLE.values():
        for param in row.params:
            words = re.findall(r"\w+", param.text)
            if param.kind in (Kind.STATIC, Kind.SHAPE) and {"int", "float", "Ints", "Any", "Shape", "OutShape"} & {
                *words
            }:
                yield f"{row.name}.{param.name}", param.name


def test_every_static_number_has_a_reason():
    without = [full for full, name in static_numbers() if full not in _REASON_OF and name not in _REASON_OF]
    assert not without, f"make these inputs (`Scalar`, `Real` or `Whole`), or give the reason why not: {without}"


def test_every_reason_is_needed():
    numbers = {name for pair in static_numbers() for name in pair}
    assert not _REASON_OF.keys() - numbers


X, V, IMAGE = weft.linspace(0.1, 0.9, 64).reshape(8, 8), weft.linspace(0.1, 0.9, 64), weft.ones(2, 4, 4, 4)
CLASSES = weft.arange(8)
PARAMETER = weft.nn.Parameter(weft.ones(4))
PARAMETER.grad = weft.ones(4)
OPTIMIZERS = {
    name: getattr(weft.optim, name)([PARAMETER], lr=0.1)
    for name in ("SGD", "Adam", "AdamW", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta", "Adamax", "ASGD")
}


def stepped(name):
    def call(i):
        group = OPTIMIZERS[name].param_groups[0]
        given = {"lr": 1e-3 * i, "eps": 1e-5 * i, "weight_decay": 1e-3 * i, "momentum": 1e-3 * i, "alpha": 1e-2 * i}
        group.update({key: value for key, value in given.items() if key in group})
        if "betas" in group:
            group["betas"] = (0.5 + 1e-3 * i, 0.6 + 1e-3 * i)
        OPTIMIZERS[name].step()

    return call


def written(index, value):
    V[index] = value


CASES = {
    # positions
    "x[i]": lambda i: V[i],
    "x[i:j]": lambda i: V[i : i + 2],
    "x[i] = v": lambda i: written(i, float(i)),
    "x[i:j] = v": lambda i: written(slice(i, i + 2), float(i)),
    "x[:, i:j]": lambda i: X[:, i % 7 : i % 7 + 2],
    "narrow": lambda i: V.narrow(0, i, 3),
    "select": lambda i: V.select(0, i),
    "select_scatter": lambda i: V.select_scatter(weft.tensor(1.0), 0, i),
    "slice_scatter": lambda i: V.slice_scatter(weft.ones(2), 0, i, i + 2),
    "as_strided": lambda i: V.as_strided((3,), (1,), i),
    "roll": lambda i: X.roll(i),
    "roll of dims": lambda i: X.roll((i, -i), (0, 1)),
    "tril": lambda i: X.tril(i),
    "triu": lambda i: X.triu(-i),
    "diagonal": lambda i: weft.ones(3, 64).diagonal(i),
    "rot90": lambda i: X.rot90(4 * i + 1),
    "kthvalue": lambda i: V.kthvalue(i),
    "quantile": lambda i: V.quantile(i / 64),
    "put_": lambda i: V.clone().put_(weft.tensor([i]), weft.ones(1)),
    # sequences and fills
    "arange": lambda i: weft.arange(i, i + 5),
    "linspace": lambda i: weft.linspace(0, i, 5),
    "full": lambda i: weft.full((3,), float(i)),
    "fill_": lambda i: V.clone().fill_(i),
    "fill_diagonal_": lambda i: X.clone().fill_diagonal_(i),
    "masked_fill": lambda i: V.masked_fill(V > 0.5, i),
    "index_fill": lambda i: V.index_fill(0, CLASSES, i),
    "scatter": lambda i: V.scatter(0, CLASSES, float(i)),
    "pad": lambda i: F.pad(IMAGE, (1, 1), value=i),
    "nan_to_num": lambda i: V.nan_to_num(i),
    "nonzero_static": lambda i: V.nonzero_static(size=3, fill_value=i),
    # arithmetic
    "add alpha": lambda i: V.add(V, alpha=i),
    "x * i": lambda i: V * i,
    "i / x": lambda i: i / V,
    "x ** i": lambda i: V ** (i + 4),
    "x ** 0.1 i": lambda i: V ** (i + 0.1),
    "clamp": lambda i: V.clamp(-i, i),
    "lerp": lambda i: V.lerp(V, i / 64),
    "addmm": lambda i: weft.addmm(X, X, X, beta=i, alpha=i),
    "renorm": lambda i: X.renorm(2, 0, float(i)),
    "var": lambda i: V.var(correction=i),
    "cov": lambda i: X.cov(correction=i % 7),
    "histc": lambda i: V.histc(10, -i, i),
    "isclose": lambda i: V.isclose(V, rtol=i / 10, atol=i / 10),
    # random numbers
    "manual_seed": lambda i: (weft.manual_seed(i), weft.rand(3)),
    "randint": lambda i: weft.randint(0, i + 1, (3,)),
    "normal_": lambda i: V.clone().normal_(i, i),
    "uniform_": lambda i: V.clone().uniform_(-i, i),
    "bernoulli_": lambda i: V.clone().bernoulli_(i / 64),
    "exponential_": lambda i: V.clone().exponential_(i),
    "dropout": lambda i: F.dropout(V, i / 64),
    "alpha_dropout": lambda i: F.alpha_dropout(V, i / 64, True),
    "feature_alpha_dropout": lambda i: F.feature_alpha_dropout(IMAGE, i / 64, True),
    "rrelu": lambda i: F.rrelu(V, 0.1, 0.2 + i, True),
    "gumbel_softmax": lambda i: F.gumbel_softmax(X, float(i)),
    # layers and losses
    "celu": lambda i: F.celu(V, float(i)),
    "elu": lambda i: F.elu(V, float(i)),
    "leaky_relu": lambda i: F.leaky_relu(V, float(i)),
    "softplus": lambda i: F.softplus(V, i, i),
    "threshold": lambda i: F.threshold(V, i, i),
    "hardtanh": lambda i: F.hardtanh(V, -i, i),
    "layer_norm": lambda i: F.layer_norm(X, (8,), eps=1e-3 * i),
    "rms_norm": lambda i: F.rms_norm(X, (8,), eps=1e-3 * i),
    "group_norm": lambda i: F.group_norm(IMAGE, 2, eps=1e-3 * i),
    "batch_norm": lambda i: F.batch_norm(IMAGE, None, None, training=True, momentum=1e-3 * i, eps=1e-3 * i),
    "instance_norm": lambda i: F.instance_norm(IMAGE, eps=1e-3 * i),
    "local_response_norm": lambda i: F.local_response_norm(IMAGE, 3, alpha=float(i), beta=0.1 * i, k=i + 1.0),
    "normalize": lambda i: F.normalize(X, eps=1e-3 * i),
    "cosine_similarity": lambda i: F.cosine_similarity(X, X, eps=1e-3 * i),
    "pairwise_distance": lambda i: F.pairwise_distance(X, X, eps=1e-3 * i),
    "avg_pool2d": lambda i: F.avg_pool2d(IMAGE[0], 2, divisor_override=i),
    "embedding": lambda i: F.embedding(CLASSES, X, padding_idx=i % 8),
    "embedding_bag": lambda i: F.embedding_bag(CLASSES.reshape(2, 4), X, padding_idx=i % 8),
    "cross_entropy": lambda i: F.cross_entropy(X, CLASSES, label_smoothing=i / 64, ignore_index=i),
    "nll_loss": lambda i: F.nll_loss(X, CLASSES, ignore_index=i),
    "smooth_l1_loss": lambda i: F.smooth_l1_loss(V, V, beta=i + 0.5),
    "huber_loss": lambda i: F.huber_loss(V, V, delta=i + 0.5),
    "gaussian_nll_loss": lambda i: F.gaussian_nll_loss(V, V, V, eps=1e-3 * i),
    "poisson_nll_loss": lambda i: F.poisson_nll_loss(V, V, log_input=False, eps=1e-3 * i),
    "triplet_margin_loss": lambda i: F.triplet_margin_loss(X, X, X, margin=i + 0.5, eps=1e-3 * i),
    "margin_ranking_loss": lambda i: F.margin_ranking_loss(V, V, V, margin=i),
    "cosine_embedding_loss": lambda i: F.cosine_embedding_loss(X, X, CLASSES, margin=i),
    "multi_margin_loss": lambda i: F.multi_margin_loss(X, CLASSES, margin=i + 0.5),
    "fake_quantize": lambda i: weft.fake_quantize_per_tensor_affine(V, 0.1, i, 0, 2 * i),
    "clip_grad_norm_": lambda i: weft.nn.utils.clip_grad_norm_([PARAMETER], float(i)),
    **{name: stepped(name) for name in OPTIMIZERS},
}


@pytest.mark.parametrize("name", CASES)
def test_many_numbers_have_one_signature(name):
    call = CASES[name]
    for i in (1, 2, 3):  # of which a default may be static, and a first step another one than all later
        call(i)
    before = signatures()
    for i in range(4, 14):
        call(i)
    assert signatures() == before


def signatures():
    return sum([len(call.signatures) + len(call.uncached) for call in infer._calls.values()])
