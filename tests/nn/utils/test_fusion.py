"""Layers that have taken in the normalisation behind them; modules that are not initialised."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn import utils


def norm(kind, size, **options):
    made = kind(size, **options).double().eval()
    made.running_mean.copy_(weft.linspace(-1, 1, size))
    made.running_var.copy_(weft.linspace(1, 2, size))
    if made.affine:
        with weft.no_grad():
            made.weight.copy_(weft.linspace(2, 3, size))
            made.bias.copy_(weft.linspace(0, 1, size))
    return made


CASES = [
    (nn.Conv1d(2, 3, 2), norm(nn.BatchNorm1d, 3), utils.fuse_conv_bn_eval, {}),
    (nn.Conv1d(2, 3, 2, bias=False), norm(nn.BatchNorm1d, 3, affine=False), utils.fuse_conv_bn_eval, {}),
    (nn.ConvTranspose1d(2, 3, 2), norm(nn.BatchNorm1d, 3), utils.fuse_conv_bn_eval, {"transpose": True}),
    (nn.Linear(4, 3), norm(nn.BatchNorm1d, 3), utils.fuse_linear_bn_eval, {}),
]


@pytest.mark.parametrize(("layer", "after", "fuse", "options"), CASES)
def test_one_layer_does_the_work_of_two(layer, after, fuse, options):
    layer = layer.double().eval()
    fused = fuse(layer, after, **options)
    x = weft.linspace(-1, 1, 16, dtype=weft.float64).reshape((4, 4) if isinstance(layer, nn.Linear) else (2, 2, 4))
    np.testing.assert_allclose(fused(x).tolist(), after(layer(x)).tolist(), atol=1e-12)
    assert type(fused) is type(layer)
    assert fused.bias is not None
    assert isinstance(fused.weight, nn.Parameter)


REFUSED = [
    (lambda: utils.fuse_linear_bn_eval(nn.Linear(2, 2), nn.BatchNorm1d(2)), AssertionError, "^Fusion only for eval!$"),
    (
        lambda: utils.fuse_linear_bn_eval(nn.Linear(2, 4).eval(), nn.BatchNorm1d(3).eval()),
        AssertionError,
        "^To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got linear.out_features=4 and",
    ),
    (
        lambda: utils.fuse_linear_bn_eval(nn.Linear(2, 2).eval(), nn.BatchNorm1d(2, track_running_stats=False).eval()),
        AssertionError,
        "^bn.running_mean and bn.running_var must not be None$",
    ),
    (lambda: utils.skip_init(list), RuntimeError, "^Expected a Module; got <class 'list'>$"),
    (lambda: utils.skip_init(nn.ReLU), RuntimeError, "^Module must support a 'device' arg to skip initialization$"),
]


@pytest.mark.parametrize(("call", "kind", "text"), REFUSED)
def test_what_does_not_fit_is_refused(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


def test_a_skipped_initialization_is_never_computed(compilations):
    layer = utils.skip_init(nn.Linear, 2, 3)
    assert layer.weight.shape == (3, 2)
    assert layer.weight.requires_grad
    assert layer.weight.detach().sum().item() == 0
    assert not [entry for entry in compilations() if "uniform" in str(entry)]


def test_memory_formats_change_nothing():
    layer = nn.Conv2d(1, 1, 1)
    weight = layer.weight
    assert utils.convert_conv2d_weight_memory_format(layer, None) is layer
    assert utils.convert_conv3d_weight_memory_format(layer, None) is layer
    assert layer.weight is weight
