"""The import paths that PyTorch users write."""

from __future__ import annotations

import importlib

import pytest

from weft import nn


def test_every_layer_has_its_path():
    layers = {name for name, kind in vars(nn).items() if isinstance(kind, type) and issubclass(kind, nn.Module)}
    layers -= set(vars(nn.parallel))
    for name in layers:
        assert getattr(nn.modules, name, None) is getattr(nn, name), (
            f"add {name} to `nn.modules` in src/weft/_import_paths/table.py, too"
        )


PATHS = {
    "nn.parameter": ["Parameter", "Buffer", "UninitializedParameter", "is_lazy"],
    "nn.modules.module": ["Module", "register_module_forward_hook", "_IncompatibleKeys"],
    "nn.modules.batchnorm": ["_BatchNorm", "BatchNorm2d"],
    "nn.modules.conv": ["_ConvNd", "Conv2d"],
    "nn.modules.lazy": ["LazyModuleMixin"],
    "nn.modules.utils": ["_pair", "_triple", "_ntuple"],
    "nn.utils.clip_grad": ["clip_grad_norm_"],
    "nn.utils.convert_parameters": ["parameters_to_vector"],
    "nn.utils.parametrize": ["register_parametrization", "cached", "ParametrizationList"],
    "nn.utils.parametrizations": ["orthogonal", "spectral_norm", "weight_norm"],
    "nn.utils.prune": ["l1_unstructured", "BasePruningMethod"],
    "nn.utils.fusion": ["fuse_conv_bn_eval"],
    "nn.utils.stateless": ["functional_call"],
    "nn.utils.weight_norm": ["WeightNorm"],
    "nn.utils.spectral_norm": ["SpectralNorm"],
    "func": ["functional_call", "stack_module_state"],
}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_leads_somewhere(path):
    module = importlib.import_module(f"weft.{path}")
    assert all(hasattr(module, name) for name in PATHS[path])


def test_functions_of_a_modules_name_win_as_attributes():
    assert nn.utils.weight_norm.__name__ == "weight_norm"
    assert callable(nn.utils.spectral_norm)


def test_helpers_of_layers():
    from weft.nn.modules.utils import _ntuple, _pair, consume_prefix_in_state_dict_if_present

    assert (_pair(3), _pair((1, 2)), _ntuple(4)(0)) == ((3, 3), (1, 2), (0, 0, 0, 0))
    state = nn.Sequential(nn.Sequential(nn.Linear(1, 1))).state_dict()
    consume_prefix_in_state_dict_if_present(state, "0.")
    assert list(state) == ["0.weight", "0.bias"]
    assert list(state._metadata) == ["", "0"]
