"""Functions of layers without a class of their own: attention, distances, noise, and other orders of dims."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn import functional as F


def cosines(*shape):
    return weft.tensor(np.cos(np.arange(np.prod(shape)) * 0.9).reshape(shape))


def attended(x, layer, **options):
    """The function with the weights of a layer."""
    return F.multi_head_attention_forward(
        x,
        x,
        x,
        4,
        2,
        layer.in_proj_weight,
        layer.in_proj_bias,
        layer.bias_k,
        layer.bias_v,
        layer.add_zero_attn,
        0.0,
        layer.out_proj.weight,
        layer.out_proj.bias,
        **options,
    )


@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True, "add_zero_attn": True}])
def test_attention_is_the_layers(options):
    layer, x = nn.MultiheadAttention(4, 2, **options).double(), cosines(3, 2, 4)
    mask = weft.ones(3, 3).triu(1).bool()
    for found, expected in zip(attended(x, layer, attn_mask=mask), layer(x, x, x, attn_mask=mask), strict=True):
        assert found.tolist() == expected.tolist()
    assert attended(x[:, 0], layer, need_weights=False)[1] is None


def test_keys_and_values_may_be_given():
    layer, x = nn.MultiheadAttention(4, 2).double(), cosines(3, 2, 4)
    fixed = cosines(4, 5, 2)
    found, weights = attended(x, layer, static_k=fixed, static_v=fixed, average_attn_weights=False)
    assert found.shape == (3, 2, 4)
    assert weights.shape == (2, 2, 3, 5)
    np.testing.assert_allclose(weights.sum(-1).detach().numpy(), np.ones((2, 2, 3)))


BAD_ATTENTION = [
    (
        "x[0, 0], {}",
        AssertionError,
        "^query should be unbatched 2D or batched 3D tensor but received 1-D query tensor$",
    ),
    ("cosines(3, 2, 6), {}", AssertionError, "^was expecting embedding dimension of 4, but got 6$"),
    ("x, {'is_causal': True}", RuntimeError, "^Need attn_mask if specifying the is_causal hint"),
    ("x, {'attn_mask': weft.ones(3, 3).long()}", AssertionError, "^only bool and floating types of attn_mask are supp"),
    (
        "x, {'attn_mask': weft.ones(2, 3)}",
        RuntimeError,
        r"^The shape of the 2D attn_mask is torch.Size\(\[2, 3\]\), but",
    ),
    (
        "x, {'key_padding_mask': weft.ones(1, 3).bool()}",
        AssertionError,
        r"key_padded_mask.shape\[0\] to be 2, but got 1$",
    ),
    (
        "x, {'key_padding_mask': weft.ones(2).bool()}",
        AssertionError,
        "to be `None` or 2-D but found 1-D tensor instead$",
    ),
    ("x, {'static_k': cosines(3, 5, 2)}", AssertionError, r"^expecting static_k.size\(0\) of 4, but got 3$"),
    ("x, {'use_separate_proj_weight': True}", AssertionError, "is True but q_proj_weight is None$"),
]


@pytest.mark.parametrize(("arguments", "error", "text"), BAD_ATTENTION, ids=[case[0] for case in BAD_ATTENTION])
def test_bad_attention(arguments, error, text):
    given, options = eval(arguments, globals(), {"x": cosines(3, 2, 4)})
    with pytest.raises(error, match=text):
        attended(given, nn.MultiheadAttention(4, 2).double(), **options)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, np.inf])
def test_distances_of_pairs(p):
    x = cosines(4, 3)
    rows = x.numpy()
    expected = [np.linalg.norm(rows[i] - rows[j], p) for i in range(4) for j in range(i + 1, 4)]
    np.testing.assert_allclose(F.pdist(x, p).numpy(), expected)
    assert F.pdist(x[:1], p).shape == (0,)


@pytest.mark.parametrize(
    ("shape", "dtype", "p", "text"),
    [
        ((2, 2, 2), weft.float32, 2, "^pdist only supports 2D tensors, got: 3D$"),
        ((2, 2), weft.int64, 2, "^pdist only supports floating-point dtypes$"),
        ((2, 2), weft.float32, -1, "^pdist only supports non-negative p values$"),
    ],
)
def test_bad_distances(shape, dtype, p, text):
    with pytest.raises(RuntimeError, match=text):
        F.pdist(weft.ones(*shape, dtype=dtype), p)


def test_a_convolution_over_time():
    x, weight, bias = cosines(5, 2, 3), cosines(2, 3, 4), cosines(4)
    expected = F.conv1d(x.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=1).permute(2, 0, 1)
    np.testing.assert_allclose(F.conv_tbc(x, weight, bias, 1).numpy(), expected.numpy())
    with pytest.raises(RuntimeError, match=r"^Bias size must equal dim 2 in the weight tensor \(output channels\).$"):
        F.conv_tbc(x, weight, bias[:3])
    with pytest.raises(RuntimeError, match=r"^Input dim 2 \(input channels\) is not == dim 1 in the weight tensor$"):
        F.conv_tbc(x, weight[:, :2], bias)


def test_shuffled_channels():
    x = cosines(1, 4, 2)
    assert F.native_channel_shuffle(x, 2).tolist() == x[:, [0, 2, 1, 3]].tolist()


def test_noise_of_gumbel():
    scores = weft.tensor([0.0, 1.0]).expand(4000, 2).clone().requires_grad_()
    hard = F.gumbel_softmax(scores, tau=0.5, hard=True)
    assert set(hard.detach().numpy().ravel()) <= {0.0, 1.0}
    assert hard[:, 1].mean().item() == pytest.approx(np.e / (1 + np.e), abs=0.03)
    hard[:, 1].sum().backward()
    assert scores.grad is not None
    assert scores.grad.abs().sum() > 0
    with pytest.warns(UserWarning, match="^`eps` parameter is deprecated and has no effect.$"):
        soft = F.gumbel_softmax(scores, eps=1e-3)
    np.testing.assert_allclose(soft.sum(1).detach().numpy(), np.ones(4000), rtol=1e-5)


def test_vectors_over_several_dims_are_normalised():
    x = cosines(2, 3, 4)
    expected = x.numpy() / np.sqrt((x.numpy() ** 2).sum((1, 2), keepdims=True))
    np.testing.assert_allclose(F.normalize(x, dim=(1, 2)).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("celu", [weft.celu, F.celu, weft.celu_])
def test_celu_divides_by_alpha(celu):
    assert celu(weft.tensor([-2.0, 1.0]), 2.0).tolist() == pytest.approx([2 * (np.exp(-1) - 1), 1])
    with pytest.raises(RuntimeError, match=r"^ZeroDivisionError: alpha cannot be 0 for CELU$"):
        celu(weft.ones(2), 0)


def test_a_temperature_may_be_learned():
    tau = weft.tensor([[0.5], [2.0]], requires_grad=True)
    soft = F.gumbel_softmax(weft.zeros(2, 3), tau)
    assert soft.sum(1).tolist() == pytest.approx([1, 1])
    soft.square().sum().backward()
    assert tau.grad is not None
    assert tau.grad.abs().min() > 0


def test_rrelu_in_place():
    x = weft.tensor([-1.0, 2.0])
    assert F.rrelu_(x) is x
    assert x.tolist() == pytest.approx([-(1 / 8 + 1 / 3) / 2, 2])


def test_responses_across_maps():
    x = cosines(1, 4, 1, 2)
    squares = x.numpy() ** 2
    near = [squares[:, [0, 1]], squares[:, [0, 1, 2]], squares[:, [0, 1, 2, 3]], squares[:, [0, 2, 3]]]
    total = np.stack([part.sum(1) for part in near], 1)  # the first channel stays in the sum, as in PyTorch
    expected = x.numpy() * (2 + 0.1 / 3 * total) ** -0.75
    np.testing.assert_allclose(nn.CrossMapLRN2d(3, 0.1, 0.75, 2)(x).numpy(), expected)
    with pytest.raises(ValueError, match=r"^CrossMapLRN2d: Expected input to be 4D, got 3D instead.$"):
        nn.CrossMapLRN2d(3)(x[0])


def test_an_old_name_of_a_loss():
    with pytest.warns(FutureWarning, match=r"^`NLLLoss2d` has been deprecated. Please use `NLLLoss` instead"):
        loss = nn.NLLLoss2d(reduction="sum")
    assert repr(loss) == "NLLLoss2d()"
    assert loss(cosines(2, 3), weft.tensor([0, 1])).item() == pytest.approx(-(1 + np.cos(3.6)))


COMPARED = [
    F.mse_loss,
    F.l1_loss,
    F.smooth_l1_loss,
    F.huber_loss,
    nn.MSELoss(),
    nn.L1Loss(),
    nn.SmoothL1Loss(),
    nn.HuberLoss(),
]


@pytest.mark.parametrize("loss", COMPARED)
def test_a_loss_of_a_target_that_broadcasts_warns_once_a_line(loss):
    x, target = weft.ones(3, 1), weft.ones(3)
    assert loss(x, target[:, None]).item() == 0  # and says nothing: warnings are errors
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            found = loss(x, target)
        loss(x, target)
    assert found.item() == 0
    text = (
        "Using a target size (torch.Size([3])) that is different to the input size (torch.Size([3, 1])). This will "
        "likely lead to incorrect results due to broadcasting. Please ensure they have the same size."
    )
    assert [(str(w.message), w.category, w.filename) for w in caught] == [(text, UserWarning, __file__)] * 2
    line = test_a_loss_of_a_target_that_broadcasts_warns_once_a_line.__code__.co_firstlineno
    assert [w.lineno - line for w in caught] == [7, 8]


def test_a_warning_that_is_an_error_records_nothing():
    for _ in range(2):
        with pytest.raises(UserWarning, match=r"^Using a target size"):
            F.mse_loss(weft.ones(3, 2), weft.ones(2))
    with pytest.raises(RuntimeError, match=r"size of tensor a \(3\)"), pytest.warns(UserWarning, match="target size"):
        F.mse_loss(weft.ones(3), weft.ones(2))


@pytest.mark.parametrize(
    ("function", "shape", "shared"),
    [
        (F.dropout1d, (40, 3), (1,)),
        (F.dropout1d, (8, 5, 3), (2,)),
        (F.dropout2d, (8, 5, 2, 3), (2, 3)),
        (F.dropout2d, (8, 5, 3), (2,)),
        (F.dropout2d, (40, 3), ()),
        (F.dropout3d, (40, 2, 2, 2), (1, 2, 3)),
        (F.dropout3d, (8, 5, 2, 2, 2), (2, 3, 4)),
        (F.dropout3d, (40, 2, 3), (1, 2)),
    ],
)
def test_which_dims_dropout_keeps_or_drops_as_one(function, shape, shared):
    usual = len(shape) != 3 if function is F.dropout2d else True
    usual = usual and len(shape) - int(function.__name__[7]) in (1, 2)
    weft.manual_seed(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = function(weft.ones(shape), 0.5).numpy()
    assert bool(caught) is not usual
    alike = found.max(axis=shared, keepdims=True) == found if shared else np.array(True)
    assert alike.all()
    assert set(np.unique(found)) == {0.0, 2.0}


def test_means_of_weighted_losses():
    x, target, weight = weft.arange(4.0), weft.full((4,), 0.5), weft.tensor([1.0, 2.0, 3.0, 4.0])
    assert F.mse_loss(x, target, weight=weight).item() == 3.25
    assert F.l1_loss(x, target, weight=weight).item() == pytest.approx(1.6)
    assert F.huber_loss(x, target, weight=weight).item() == 2.84375  # by the number of elements
    with pytest.warns(UserWarning, match="different to the input size"):
        assert F.mse_loss(x, weft.ones(2, 4), weight=weight).item() == 4.0


@pytest.mark.parametrize("smoothing", [-0.5, float("nan")])
def test_smoothing_by_what_is_no_positive_number_is_none(smoothing):
    scores = cosines(3, 4)
    for target in (weft.tensor([0, 3, 1]), cosines(3, 4).softmax(1)):
        found = F.cross_entropy(scores, target, label_smoothing=smoothing)
        assert found.item() == F.cross_entropy(scores, target).item()


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.adaptive_max_pool1d(weft.ones(1, 1, 4), 2**40),
        lambda: F.adaptive_avg_pool1d(weft.ones(1, 1, 4), 2**40),
        lambda: F.interpolate(weft.ones(1, 1, 4), size=2**40, mode="linear"),
        lambda: weft.tril_indices(2**30, 2**30),
        lambda: F.max_pool1d(weft.ones(1, 1, 4), 2**60, padding=2**59, stride=2**59),
    ],
)
def test_results_that_no_memory_holds_are_refused_before_anything_is_made(call):
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator: can't allocate memory: you tried to allocate"):
        call()


@pytest.mark.parametrize(
    ("pool", "shape", "text"),
    [
        (F.adaptive_avg_pool2d, (2, 3, 4, 4), r"avg_pool2d_backward\(\): .* has sizes \[2, 3, 0, 0\] with dimension 2"),
        (F.adaptive_max_pool2d, (2, 3, 4, 4), r"max_pool2d_backward\(\): .* has sizes \[2, 3, 0, 0\] with dimension 2"),
        (F.adaptive_avg_pool1d, (2, 3, 4), r"avg_pool2d_backward\(\): .* has sizes \[2, 3, 1, 0\] with dimension 3"),
    ],
)
def test_pools_without_windows_can_be_read_and_refuse_a_backward_pass(pool, shape, text):
    x = weft.ones(shape, requires_grad=True)
    others = [x * i for i in range(40)]  # so many that a flush asks what derivatives will read
    pooled = pool(x, 0)
    assert pooled.flatten().tolist() == []
    with pytest.raises(RuntimeError, match=f"^adaptive_{text} being empty$"):
        pooled.sum().backward()
    del others
