"""Networks for images as programs for all heights and widths: strides, skips, transposed convolutions, resizing."""

from __future__ import annotations

import numpy as np
import pytest

import weft as torch
from weft import nn
from weft.errors import ProgramError
from weft.export import Dim, dims, export
from weft.nn import functional as F


class Block(nn.Module):
    """A residual block, whose two ways have sizes that are rounded at different places."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs))
        self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.skip = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.second(F.relu(self.first(x))) + self.skip(x))


def residual():
    return nn.Sequential(
        nn.Conv2d(3, 4, 7, 2, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1), Block(4, 4, 1), Block(4, 6, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5),
    )  # fmt: skip


class Ladder(nn.Module):
    """Down by strides, up by transposed convolutions or by resizing, with skips."""

    def __init__(self, mode):
        super().__init__()
        self.mode = mode
        self.down = nn.Conv2d(3, 4, 3, 2, 1)
        self.lower = nn.Conv2d(4, 6, 3, 2, 1)
        self.up = nn.ConvTranspose2d(6, 4, 2, 2)
        self.narrow = nn.Conv2d(6, 4, 1)
        self.last = nn.Conv2d(8, 2, 3, padding=1)

    def forward(self, x):
        high = F.relu(self.down(x))
        low = F.relu(self.lower(high))
        if self.mode == "transposed":
            low = self.up(low)
        elif self.mode == "to a size":
            low = self.narrow(F.interpolate(low, size=high.shape[2:], mode="bilinear"))
        else:
            low = self.narrow(F.interpolate(low, scale_factor=2, mode=self.mode))
        return self.last(torch.cat([low, high], 1))


def agrees(model, program, *shape):
    x = torch.randn(*shape)
    with torch.no_grad():
        np.testing.assert_allclose(program(x).numpy(), model(x).numpy(), rtol=1e-4, atol=1e-5)


def test_strides_and_residual_ways():
    b, h, w = Dim("b"), *dims("h", "w", min=9)
    model = residual().eval()
    program = export(model, (torch.randn(2, 3, 32, 32),), dynamic_shapes=({0: b, 2: h, 3: w},))
    for shape in ((1, 3, 9, 10), (3, 3, 33, 64), (2, 3, 47, 31)):
        agrees(model, program, *shape)


def test_multiples_of_the_stride():
    h, w = dims("h", "w")
    program = export(model := residual().eval(), (torch.randn(1, 3, 64, 64),), dynamic_shapes=({2: 32 * h, 3: 32 * w},))
    agrees(model, program, 1, 3, 96, 64)


@pytest.mark.soak
def test_small_sizes_that_are_other_ones():
    h, w = dims("h", "w")
    model = residual().eval()
    with pytest.warns(UserWarning, match=r"it can be exported for '[hw]' from 9 on, as it does something else with"):
        program = export(model, (torch.randn(1, 3, 32, 32),), dynamic_shapes=({2: h, 3: w},))
    assert {low for low, _ in program.range_constraints.values()} == {9}
    agrees(model, program, 1, 3, 9, 21)
    with pytest.raises(ProgramError, match=r"shape\[2\] to be >= 9, but got 8"):
        program(torch.randn(1, 3, 8, 32))
    h, w = dims("h", "w", min=4)
    with pytest.raises(ProgramError, match=r"from 9 on.*; say so by Dim\('[hw]', min=9\)"):
        export(model, (torch.randn(1, 3, 32, 32),), dynamic_shapes=({2: h, 3: w},))


def test_an_example_that_is_too_small():
    h, w = dims("h", "w")
    with pytest.raises(ProgramError, match=r"With an example of that size, it may be possible for 'h' from 9 on, 'w'"):
        export(residual().eval(), (torch.randn(1, 3, 8, 8),), dynamic_shapes=({2: h, 3: w},))


def test_statistics_of_a_batch():
    h, w = dims("h", "w", min=9)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(3, 2, 1))
    program = export(model, (torch.randn(2, 3, 32, 32),), dynamic_shapes=({2: h, 3: w},))
    x = torch.randn(2, 3, 33, 20)
    found = program(x)
    variance = model[1].running_var.clone()
    model[1].reset_running_stats()
    np.testing.assert_allclose(found.detach().numpy(), model(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(variance.numpy(), model[1].running_var.numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    "mode", ["transposed", *(pytest.param(m, marks=pytest.mark.soak) for m in ("nearest", "bilinear"))]
)
def test_up_again(mode):
    h, w = dims("h", "w")
    model = Ladder(mode).eval()
    program = export(model, (torch.randn(2, 3, 16, 16),), dynamic_shapes=({2: 4 * h, 3: 4 * w},))
    agrees(model, program, 2, 3, 24, 36)


def test_up_to_a_size():
    h, w = dims("h", "w", min=6)
    model = Ladder("to a size").eval()
    program = export(model, (torch.randn(2, 3, 16, 16),), dynamic_shapes=({2: h, 3: w},))
    agrees(model, program, 2, 3, 17, 39)


def test_tokens_of_patches():
    h, w = dims("h", "w", min=8)
    patches = nn.Conv2d(3, 4, 4, 4)

    def tokens(x):
        y = patches(x)
        return y.view(y.shape[0], 4, -1).transpose(1, 2).mean(1)

    program = export(tokens, (torch.randn(2, 3, 16, 16),), dynamic_shapes=({2: h, 3: w},))
    x = torch.randn(2, 3, 27, 41)
    np.testing.assert_allclose(program(x).detach().numpy(), tokens(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_pooling_to_a_size():
    h, w = dims("h", "w", min=5)
    model = nn.AdaptiveAvgPool2d((3, 2))
    program = export(model, (torch.randn(1, 2, 8, 8),), dynamic_shapes=({2: h, 3: w},))
    agrees(model, program, 1, 2, 7, 13)
