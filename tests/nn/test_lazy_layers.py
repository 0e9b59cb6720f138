"""Layers that take the number of their inputs from the first one."""

from __future__ import annotations

import pytest

import weft
from weft import nn

LAYERS = [
    (lambda: nn.LazyLinear(4), (2, 3), nn.Linear, "in_features=3, out_features=4, bias=True", (4, 3)),
    (
        lambda: nn.LazyConv1d(4, 3, stride=2),
        (2, 6, 5),
        nn.Conv1d,
        "6, 4, kernel_size=(3,), stride=(2,)",
        (4, 6, 3),
    ),
    (
        lambda: nn.LazyConv2d(4, 1, groups=2, bias=False),
        (6, 2, 2),
        nn.Conv2d,
        "6, 4, kernel_size=(1, 1), stride=(1, 1), groups=2, bias=False",
        (4, 3, 1, 1),
    ),
    (
        lambda: nn.LazyConvTranspose1d(4, 3, groups=2),
        (2, 6, 5),
        nn.ConvTranspose1d,
        "6, 4, kernel_size=(3,), stride=(1,), groups=2",
        (6, 2, 3),
    ),
    (
        lambda: nn.LazyBatchNorm1d(bias=False),
        (2, 3),
        nn.BatchNorm1d,
        "3, eps=1e-05, momentum=0.1, affine=True, bias=False, track_running_stats=True",
        (3,),
    ),
    (
        lambda: nn.LazyInstanceNorm1d(),
        (2, 3, 4),
        nn.InstanceNorm1d,
        "3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True",
        (3,),
    ),
]


@pytest.mark.parametrize(
    ("make", "shape", "kind", "shown", "weight"), LAYERS, ids=[case[2].__name__ for case in LAYERS]
)
def test_the_first_input_makes_it_an_ordinary_layer(make, shape, kind, shown, weight):
    layer = make()
    names = list(layer.state_dict())
    assert all(nn.parameter.is_lazy(p) for p in layer.parameters())
    layer(weft.ones(shape))
    assert type(layer) is kind
    assert repr(layer) == f"{kind.__name__}({shown})"
    assert layer.weight.shape == weight
    assert list(layer.state_dict()) == names
    if "Norm" in kind.__name__:
        assert layer.running_var.shape == (3,)


def test_parameters_are_drawn_as_in_the_ordinary_layer():
    layer = nn.LazyLinear(2)
    weft.manual_seed(1)
    layer(weft.ones(1, 3))
    weft.manual_seed(1)
    assert layer.weight.tolist() == nn.Linear(3, 2).weight.tolist()
    norm = nn.LazyBatchNorm1d()
    norm(weft.ones(2, 2))
    assert (norm.weight.tolist(), norm.bias.tolist()) == ([1, 1], [0, 0])


def test_every_lazy_layer_becomes_the_layer_of_its_name():
    names = [name for name in vars(nn) if name.startswith("Lazy")]
    assert len(names) == 13
    for name in names:
        assert getattr(nn, name).cls_to_become is getattr(nn, name.removeprefix("Lazy"))


def test_before_that_there_are_no_inputs():
    assert repr(nn.LazyLinear(4)) == "LazyLinear(in_features=0, out_features=4, bias=True)"
    assert repr(nn.LazyConv3d(4, 1)) == "LazyConv3d(0, 4, kernel_size=(1, 1, 1), stride=(1, 1, 1))"


def test_type_and_device_arguments_reach_the_parameters():
    layer = nn.LazyBatchNorm2d(device="cpu", dtype=weft.float64)
    layer(weft.ones(2, 2, 1, 1, dtype=weft.float64))
    assert {t.dtype for t in (layer.weight, layer.running_mean)} == {weft.float64}
    assert layer.num_batches_tracked.dtype is weft.int64


def test_a_loaded_layer_finds_its_inputs():
    layer = nn.LazyLinear(2)
    layer.load_state_dict(nn.Linear(3, 2).state_dict())
    layer(weft.ones(3))
    assert repr(layer) == "Linear(in_features=3, out_features=2, bias=True)"
    layer = nn.LazyLinear(2)
    layer.load_state_dict(nn.Linear(3, 2).state_dict())
    with pytest.raises(AssertionError, match=r"^The in_features inferred from input: 4 is not equal to in_features"):
        layer(weft.ones(4))


REFUSED = [
    (
        lambda: nn.LazyConv2d(4, 3)(weft.ones(2, 3)),
        RuntimeError,
        r"^Expected 3D \(unbatched\) or 4D \(batched\) input to LazyConv2d, but got input of size: torch.Size",
    ),
    (lambda: nn.LazyConv1d(4, 3, groups=2)(weft.ones(3, 4)), ValueError, "^in_channels must be divisible by groups$"),
    (lambda: nn.LazyBatchNorm2d()(weft.ones(2, 3)), ValueError, r"^expected 4D input \(got 2D input\)$"),
]


@pytest.mark.parametrize(("call", "kind", "text"), REFUSED)
def test_inputs_that_do_not_fit_are_refused(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


def test_a_compiled_layer_initializes_on_its_first_call():
    layer = nn.LazyLinear(2)
    compiled = weft.compile(layer)
    x = weft.ones(1, 3)
    assert compiled(x).shape == compiled(x).shape == (1, 2)
    assert type(layer) is nn.Linear
