"""Layers and losses: outputs, and how they print. The numbers are PyTorch's."""

from __future__ import annotations

import copy
import inspect
import math
import pickle

import numpy as np
import pytest

import weft
from weft import nn


def filled(module):
    """The module in float64, with sines for parameters."""
    with weft.no_grad():
        for at, parameter in enumerate(module.double().parameters()):
            sines = np.sin(np.arange(parameter.numel()) * 0.7 + at)
            parameter.copy_(weft.tensor(sines.reshape(parameter.shape)))
    return module


def cosines(*shape):
    return weft.tensor(np.cos(np.arange(np.prod(shape)) * 0.9).reshape(shape))


def weighed(y):
    """One number that depends on every element and its place."""
    return float((y.detach().numpy().ravel() * np.sin(np.arange(y.numel()) + 1)).sum())


LAYERS = [
    ("nn.Linear(3, 2)", (2, 3), (2, 2), 2.824496912691),
    ("nn.Conv1d(2, 3, 2, padding=1, padding_mode='circular')", (1, 2, 4), (1, 3, 5), 3.129858486865),
    ("nn.Conv2d(2, 2, 3, padding='same', groups=2)", (1, 2, 3, 3), (1, 2, 3, 3), 5.248302559103),
    ("nn.Conv3d(1, 2, 2)", (1, 1, 2, 3, 2), (1, 2, 1, 2, 1), -0.512935898071),
    ("nn.ConvTranspose1d(2, 2, 3, stride=2, output_padding=1)", (1, 2, 3), (1, 2, 8), 2.009143450814),
    ("nn.ConvTranspose2d(1, 2, 2, stride=2)", (1, 1, 2, 2), (1, 2, 4, 4), -0.293543180671),
    ("nn.LayerNorm(3)", (2, 3), (2, 3), -0.039451857161),
    ("nn.RMSNorm(3)", (2, 3), (2, 3), 1.301588162491),
    ("nn.GroupNorm(2, 4)", (1, 4, 2), (1, 4, 2), 3.561155542229),
    ("nn.BatchNorm1d(3)", (4, 3), (4, 3), 3.708904041167),
    ("nn.BatchNorm2d(2, momentum=None)", (2, 2, 2, 2), (2, 2, 2, 2), 4.411522750039),
    ("nn.InstanceNorm1d(2, affine=True)", (1, 2, 4), (1, 2, 4), 3.340940678969),
    ("nn.LocalResponseNorm(2)", (1, 3, 2), (1, 3, 2), 2.977564785884),
    ("nn.PReLU(2)", (1, 2, 3), (1, 2, 3), 2.439397727673),
    ("nn.GELU('tanh')", (4,), (4,), 1.234195628333),
    ("nn.Softplus(2)", (4,), (4,), 1.552561503186),
    ("nn.Hardtanh(-0.5, 0.25)", (4,), (4,), 0.784030589128),
    ("nn.Softmax(1)", (2, 3), (2, 3), 0.191843957563),
    ("nn.Threshold(0.1, 7.0)", (4,), (4,), -2.903078081291),
    ("nn.GLU()", (2, 4), (2, 2), 0.569965439741),
    ("nn.MaxPool2d(2)", (1, 1, 4, 4), (1, 1, 2, 2), 1.085654082387),
    ("nn.AvgPool1d(2, stride=1)", (1, 1, 4), (1, 1, 3), 0.781763186068),
    ("nn.AdaptiveAvgPool2d((1, 2))", (1, 1, 4, 4), (1, 1, 1, 2), 0.173911552433),
    ("nn.AdaptiveMaxPool1d(2)", (1, 1, 5), (1, 1, 2), 0.634876704734),
    ("nn.Flatten()", (2, 2, 2), (2, 4), 4.383866749436),
    ("nn.Unflatten(1, (2, 2))", (1, 4), (1, 2, 2), 2.058840621028),
    ("nn.ZeroPad2d((1, 0, 0, 1))", (1, 1, 2, 2), (1, 1, 3, 3), 1.467500402383),
    ("nn.ReflectionPad1d(1)", (1, 1, 3), (1, 1, 5), 1.095956006981),
    ("nn.Upsample(scale_factor=2)", (1, 1, 2), (1, 1, 4), 1.368054040271),
    ("nn.PixelShuffle(2)", (1, 4, 1, 2), (1, 1, 2, 4), 2.940111121351),
    (
        "nn.TransformerEncoderLayer(4, 2, 3, dropout=0.0, norm_first=True, activation='gelu')",
        (2, 1, 4),
        (2, 1, 4),
        4.216830866722,
    ),
    ("nn.Sequential(nn.Linear(3, 2), nn.Tanh())", (1, 3), (1, 2), 1.531747032126),
]


@pytest.mark.parametrize(("text", "shape", "expected_shape", "expected"), LAYERS, ids=[case[0] for case in LAYERS])
def test_a_layer_gives_the_known_numbers(text, shape, expected_shape, expected):
    y = filled(eval(text))(cosines(*shape))
    assert tuple(y.shape) == expected_shape
    assert weighed(y) == pytest.approx(expected, abs=1e-10)


LOSSES = [
    ("nn.L1Loss()", 0.624135387134),
    ("nn.MSELoss(reduction='sum')", 3.291024193372),
    ("nn.SmoothL1Loss(beta=0.5)", 0.421276050293),
    ("nn.HuberLoss(delta=0.5)", 0.210638025147),
    ("nn.KLDivLoss(reduction='batchmean')", -1.246648247063),
    ("nn.BCEWithLogitsLoss(pos_weight=weft.tensor([1.0, 2.0, 3.0], dtype=weft.float64))", 0.905713981687),
    ("nn.SoftMarginLoss()", 0.652416407294),
    ("nn.GaussianNLLLoss()", 0.274252016114),
    ("nn.CrossEntropyLoss(label_smoothing=0.1)", 1.602482478863),
    ("nn.CrossEntropyLoss(ignore_index=0, reduction='sum')", 1.909326153729),
    ("nn.NLLLoss(weight=weft.tensor([1.0, 2.0, 3.0], dtype=weft.float64))", 0.396419606524),
    ("nn.MultiMarginLoss()", 1.129434037654),
]


@pytest.mark.parametrize(("text", "expected"), LOSSES, ids=[case[0] for case in LOSSES])
def test_a_loss_gives_the_known_number(text, expected):
    loss = eval(text)
    x, y = cosines(2, 3), (cosines(2, 3) + 1.5).abs() / 3
    by_class = "CrossEntropy" in text or "NLLLoss(weight" in text or "MultiMargin" in text
    rest = (weft.ones(2, 3, dtype=weft.float64),) if "Gaussian" in text else ()
    assert loss(x, weft.tensor([2, 0]) if by_class else y, *rest).item() == pytest.approx(expected, abs=1e-10)


ATTENTION = [
    ("", (3, 2, 4), (2, 3, 5), 3.027693086465, 4.220142747725),
    ("add_bias_kv=True, add_zero_attn=True", (3, 2, 4), (2, 3, 7), -0.677776277250, 1.901666616388),
    ("kdim=3, vdim=2", (3, 2, 4), (2, 3, 5), -0.437635746989, 2.527877676724),
    ("bias=False, batch_first=True", (3, 2, 4), (3, 2, 5), -1.861651096670, 3.192727299457),
]


@pytest.mark.parametrize(("options", "shape", "weights_shape", "expected", "expected_weights"), ATTENTION)
def test_attention_gives_the_known_numbers(options, shape, weights_shape, expected, expected_weights):
    attention = filled(eval(f"nn.MultiheadAttention(4, 2, {options})"))
    first = "batch_first" in options
    query = cosines(3, 2, 4)
    key = cosines(3, 5, 4) if first else cosines(5, 2, 3 if "kdim" in options else 4)
    value = cosines(5, 2, 2) if "kdim" in options else key
    mask = weft.ones(2 if first else 3, 5, dtype=weft.bool).triu(3)
    padding = weft.zeros(3 if first else 2, 5, dtype=weft.bool)
    padding[0, 0] = True
    y, weights = attention(query, key, value, attn_mask=mask, key_padding_mask=padding)
    assert (tuple(y.shape), tuple(weights.shape)) == (shape, weights_shape)
    assert weighed(y) == pytest.approx(expected, abs=1e-10)
    assert float((weights * weights).sum()) == pytest.approx(expected_weights, abs=1e-10)
    fused, nothing = attention(query, key, value, attn_mask=mask, key_padding_mask=padding, need_weights=False)
    assert nothing is None
    np.testing.assert_allclose(fused.detach().numpy(), y.detach().numpy(), atol=1e-12)


PRINTED = [
    ("nn.ReLU(True)", "ReLU(inplace=True)"),
    ("nn.Hardswish(True)", "Hardswish()"),
    ("nn.GELU()", "GELU(approximate='none')"),
    ("nn.Hardtanh(-2, 2, True)", "Hardtanh(min_val=-2, max_val=2, inplace=True)"),
    ("nn.Linear(2, 3, bias=False)", "Linear(in_features=2, out_features=3, bias=False)"),
    (
        "nn.Conv2d(2, 4, 3, padding='same', groups=2, bias=False, padding_mode='reflect')",
        "Conv2d(2, 4, kernel_size=(3, 3), stride=(1, 1), padding=same, groups=2, bias=False, padding_mode=reflect)",
    ),
    ("nn.MaxPool2d(2)", "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)"),
    ("nn.AvgPool1d(2)", "AvgPool1d(kernel_size=(2,), stride=(2,), padding=(0,))"),
    ("nn.Embedding(3, 4, 0, max_norm=1.0)", "Embedding(3, 4, padding_idx=0, max_norm=1.0)"),
    ("nn.LayerNorm(3)", "LayerNorm((3,), eps=1e-05, elementwise_affine=True, bias=True)"),
    (
        "nn.BatchNorm1d(3)",
        "BatchNorm1d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)",
    ),
    ("nn.Upsample(scale_factor=2)", "Upsample(scale_factor=2.0, mode='nearest')"),
    ("nn.ConstantPad1d((1, 2), 3.0)", "ConstantPad1d(padding=(1, 2), value=3.0)"),
    ("nn.CrossEntropyLoss()", "CrossEntropyLoss()"),
    (
        "nn.MultiheadAttention(4, 2)",
        "MultiheadAttention(\n"
        "  (out_proj): NonDynamicallyQuantizableLinear(in_features=4, out_features=4, bias=True)\n)",
    ),
]


@pytest.mark.parametrize(("text", "expected"), PRINTED, ids=[case[1] for case in PRINTED])
def test_layers_print_their_options(text, expected):
    assert repr(eval(text)) == expected


def test_batch_norm_keeps_running_statistics_in_training_only():
    norm = nn.BatchNorm1d(2)
    x = weft.tensor([[0.0, 2.0], [2.0, 6.0]])
    norm(x)
    assert norm.running_mean.tolist() == pytest.approx([0.1, 0.4])
    assert norm.running_var.tolist() == pytest.approx([0.9 + 0.1 * 2, 0.9 + 0.1 * 8])
    assert norm.num_batches_tracked.item() == 1
    norm.eval()(x)
    assert norm.num_batches_tracked.item() == 1
    norm.reset_running_stats()
    assert norm.running_mean.tolist() == [0, 0]


def test_dropout_acts_in_training_only():
    dropout = nn.Dropout(0.5)
    x = weft.ones(100)
    assert set(dropout(x).tolist()) == {0.0, 2.0}
    assert dropout.eval()(x) is x


def test_initial_parameters_follow_the_fan_in():
    linear = nn.Linear(100, 50)
    bound = 1 / np.sqrt(100)
    for parameter in linear.parameters():
        assert 0.8 * bound < float(parameter.abs().max()) <= bound
    table = nn.Embedding(50, 20, padding_idx=-1)
    assert table.weight[-1].tolist() == [0.0] * 20
    assert float(table.weight[:-1].std()) == pytest.approx(1, abs=0.1)


def test_pretrained_vectors_are_frozen():
    table = nn.Embedding.from_pretrained(weft.eye(3))
    assert not table.weight.requires_grad
    assert table(weft.tensor([2])).tolist() == [[0, 0, 1]]


def test_layers_made_from_a_table_are_ordinary_classes():
    class Doubled(nn.ReLU):
        def __init__(self):
            super().__init__()
            self.factor = 2

        def forward(self, input):
            return super().forward(input) * self.factor

    assert Doubled()(weft.tensor([-1.0, 3.0])).tolist() == [0, 6]
    assert str(inspect.signature(nn.Threshold)) == "(threshold, value, inplace=False)"
    assert repr(pickle.loads(pickle.dumps(nn.LeakyReLU(0.2)))) == "LeakyReLU(negative_slope=0.2)"
    assert repr(copy.deepcopy(nn.MaxPool1d(2))) == repr(nn.MaxPool1d(2))


def test_transposed_convolutions_reach_an_output_size():
    layer = nn.ConvTranspose1d(1, 1, 3, stride=2)
    assert layer(weft.ones(1, 1, 3), output_size=(8,)).shape == (1, 1, 8)


def test_a_transformer_attends_causally():
    model = nn.Transformer(4, 2, 1, 1, 8, dropout=0.0, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    source, target = weft.randn(1, 2, 4), weft.randn(1, 3, 4)
    before = model(source, target, tgt_mask=mask)
    changed = target.clone()
    changed[0, 2] = 5
    after = model(source, changed, tgt_mask=mask)
    np.testing.assert_allclose(after[:, :2].detach().numpy(), before[:, :2].detach().numpy(), atol=1e-6)


def test_inputs_may_be_given_by_name():
    x, y = weft.tensor([-1.0, 3.0]), weft.tensor([1.0, 1.0])
    assert nn.ReLU()(input=x).tolist() == [0, 3]
    assert nn.L1Loss()(target=y, input=x).item() == 2
    assert nn.PoissonNLLLoss(log_input=False)(log_input=y, target=y).item() == 1
    assert str(inspect.signature(nn.GaussianNLLLoss)) == "(*, full=False, eps=1e-06, reduction='mean')"


def test_slopes_are_drawn_in_training_only():
    layer, x = nn.RReLU(0.1, 0.9), -weft.ones(100)
    assert len(set(layer(x).tolist())) > 50
    assert layer.eval()(x).tolist() == pytest.approx([-0.5] * 100)


def test_relatives_are_subclasses():
    assert isinstance(nn.ReLU6(), nn.Hardtanh)
    assert isinstance(nn.UpsamplingNearest2d(2), nn.Upsample)
    assert isinstance(nn.ZeroPad2d(1), nn.ConstantPad2d)
    assert nn.ZeroPad2d(1).value == 0


def test_old_arguments_warn_and_work():
    with pytest.warns(UserWarning, match="^Implicit dimension choice for softmax has been deprecated"):
        assert nn.Softmax()(weft.zeros(2, 4)).tolist() == [[0.25] * 4] * 2
    with pytest.warns(FutureWarning, match="^keyword argument `min_value` is deprecated and renamed to `min_val`$"):
        assert repr(nn.Hardtanh(min_value=-2)) == "Hardtanh(min_val=-2, max_val=1.0)"
    with pytest.warns(UserWarning, match="^input's size at dim=1 does not match num_features"):
        nn.InstanceNorm1d(3)(weft.ones(1, 2, 4))


def test_an_empty_batch_leaves_running_statistics_alone():
    norm = nn.BatchNorm1d(2)
    assert norm(weft.ones(0, 2, 3)).shape == (0, 2, 3)
    assert (norm.running_mean.tolist(), norm.running_var.tolist()) == ([0, 0], [1, 1])


def test_a_mean_over_ignored_samples_gives_no_gradient():
    scores = weft.ones(2, 3, requires_grad=True)
    loss = nn.CrossEntropyLoss(ignore_index=1)(scores, weft.tensor([1, 1]))
    loss.backward()
    assert math.isnan(loss.item())
    assert scores.grad.tolist() == [[0] * 3] * 2


def test_channels_of_an_empty_batch_are_shuffled():
    assert nn.ChannelShuffle(2)(weft.zeros(0, 4, 3)).shape == (0, 4, 3)


def test_sizes_may_be_any_iterable():
    assert nn.Conv2d(1, 1, range(2, 4)).kernel_size == (2, 3)


def test_slopes_are_reset_in_place():
    prelu = nn.PReLU(2, 0.5, dtype=weft.float64)
    slopes = prelu.weight
    with weft.no_grad():
        slopes.zero_()
    prelu.reset_parameters()
    assert prelu.weight is slopes
    assert (slopes.tolist(), slopes.dtype) == ([0.5, 0.5], weft.float64)
