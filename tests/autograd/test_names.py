"""Names that programs import from `torch.autograd`, and small switches."""

from __future__ import annotations

import importlib

import pytest

import weft

NAMES = {
    "autograd": "Function Variable backward detect_anomaly enable_grad forward_ad functional grad grad_mode gradcheck "
    "gradgradcheck graph inference_mode no_grad profiler set_detect_anomaly set_grad_enabled "
    "set_multithreading_enabled is_multithreading_enabled SavedTensor variable",
    "autograd.function": "BackwardCFunction Function FunctionCtx FunctionMeta InplaceFunction once_differentiable",
    "autograd.graph": "GradientEdge Node allow_mutation_on_saved_tensors disable_saved_tensors_hooks get_gradient_edge "
    "increment_version register_multi_grad_hook save_on_cpu saved_tensors_hooks set_override_stale_capture_stream "
    "set_warn_on_accumulate_grad_stream_mismatch",
    "autograd.gradcheck": "GradcheckError gradcheck gradgradcheck",
    "autograd.grad_mode": "enable_grad inference_mode no_grad set_grad_enabled set_multithreading_enabled",
    "autograd.anomaly_mode": "detect_anomaly set_detect_anomaly",
    "autograd.variable": "Variable",
    "autograd.profiler": "emit_itt emit_nvtx profile record_function",
}


@pytest.mark.parametrize("module", NAMES)
def test_names_are_there(module):
    found = importlib.import_module(f"weft.{module}")
    assert not [name for name in NAMES[module].split() if not hasattr(found, name)]


def test_variables_are_tensors():
    x = weft.ones(2)
    leaf = weft.autograd.Variable(x, requires_grad=True)
    assert isinstance(leaf, weft.autograd.Variable)
    assert isinstance(x, weft.autograd.Variable)
    assert not isinstance([1.0], weft.autograd.Variable)
    assert (leaf.requires_grad, x.requires_grad, leaf.is_leaf) == (True, False, True)
    x.mul_(3)
    assert leaf.tolist() == [3, 3]
    with pytest.raises(TypeError, match=r"^Variable data has to be a tensor, but got list$"):
        weft.autograd.Variable([1.0])
    with pytest.raises(RuntimeError, match=r"use torch\.tensor\(\.\.\.\) instead$"):
        weft.autograd.variable([1.0])


def test_multithreading_is_a_switch():
    enabled = weft.autograd.is_multithreading_enabled
    assert enabled()
    with weft.autograd.set_multithreading_enabled(False):
        assert not enabled()
    assert enabled()

    @weft.autograd.set_multithreading_enabled(False)
    def function():
        return enabled()

    assert enabled()
    assert not function()
    assert enabled()


def test_names_of_profiles():
    with weft.autograd.profiler.record_function("block"), weft.autograd.profiler.profile(enabled=False):
        pass
    with pytest.raises(TypeError, match=r"^record_function: name must be a string, got int$"):
        weft.autograd.profiler.record_function(5)
    assert weft.autograd.profiler.kineto_available()


def test_hooks_after_accumulation_are_for_leaves():
    with pytest.raises(RuntimeError, match=r"^cannot register a hook on a tensor that doesn't require gradient$"):
        weft.ones(1).register_post_accumulate_grad_hook(print)
