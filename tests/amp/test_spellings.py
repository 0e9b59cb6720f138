"""Devices that name a type, modules by their paths in PyTorch, and losses that scaled float16 needs."""

from __future__ import annotations

import importlib

import pytest

import weft as torch

F = torch.nn.functional


def test_a_device_stands_for_its_type():
    assert not torch.is_autocast_enabled("cpu:0")
    with torch.autocast("cpu:0", dtype=torch.float16):
        assert torch.is_autocast_enabled("cpu")
        assert torch.is_autocast_enabled("cpu:0")
        assert torch.get_autocast_dtype("cpu:0") is torch.float16
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float16
    torch.set_autocast_enabled("cpu:0", True)
    assert torch.is_autocast_enabled("cpu")
    torch.set_autocast_enabled("cpu", False)


def test_a_device_stands_for_its_type_in_functions_of_ones_own():
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu:0", cast_inputs=torch.float32)
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu:0")
        def backward(ctx, grad):
            return grad * 2

    with torch.autocast("cpu"):
        assert Product.apply(torch.ones(2, dtype=torch.bfloat16, requires_grad=True)).dtype is torch.float32


@pytest.mark.parametrize("package", ["amp", "cpu.amp", "cuda.amp"])
def test_modules_have_pytorchs_paths(package):
    regions = importlib.import_module(f"weft.{package}.autocast_mode")
    scalers = importlib.import_module(f"weft.{package}.grad_scaler")
    assert regions.autocast is importlib.import_module(f"weft.{package}").autocast
    assert scalers.GradScaler is importlib.import_module(f"weft.{package}").GradScaler


def test_the_scaler_is_also_in_the_package():
    assert torch.GradScaler is torch.amp.GradScaler


@pytest.mark.parametrize("loss", ["cross_entropy", "l1_loss", "huber_loss", "binary_cross_entropy_with_logits"])
def test_a_float16_loss_times_the_usual_scale_is_finite(loss):
    layer = torch.nn.Linear(4, 3)
    scaler = torch.amp.GradScaler("cpu")
    with torch.autocast("cpu", dtype=torch.float16):
        result = getattr(F, loss)(layer(torch.ones(2, 4)), torch.ones(2, 3) * 3)
    assert result.dtype is torch.float32
    scaled = scaler.scale(result)
    assert scaled.isfinite()
    assert scaled > torch.finfo(torch.float16).max / 2
