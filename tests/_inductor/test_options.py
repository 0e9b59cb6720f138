"""`weft._inductor`: options under PyTorch's names."""

from __future__ import annotations

import pytest

import weft as torch
from weft import _inductor


def test_modes_and_options():
    assert _inductor.list_mode_options("reduce-overhead") == {"triton.cudagraphs": True}
    assert set(_inductor.list_mode_options()) >= {"default", "max-autotune"}
    assert {name for options in _inductor.list_mode_options().values() for name in options} <= set(
        _inductor.list_options()
    )
    with pytest.raises(RuntimeError, match=r"^Unrecognized mode=fast, should be one of: default, lite"):
        _inductor.list_mode_options("fast")
    _inductor.cudagraph_mark_step_begin()


def test_settings():
    config = torch._inductor.config
    assert config.triton.cudagraphs is False
    with config.patch({"triton.cudagraphs": True, "max_autotune": True}):
        assert (config.triton.cudagraphs, config.max_autotune) == (True, True)
    config.triton.cudagraphs = True
    assert config.get_config_copy()["triton.cudagraphs"] is True
    config.triton.cudagraphs = False
    with pytest.raises(AttributeError):
        config.triton.cudagraph = True


def test_xla_compiles_the_graph():
    from weft._inductor.compile_fx import compile_fx

    graph = torch.fx.symbolic_trace(lambda x: x * 2)
    assert compile_fx(graph, [torch.ones(1)])(torch.ones(1)).tolist() == [2]
