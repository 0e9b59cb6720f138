"""Layers of a model that follow each other become one, before the model is quantized."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TypeVar

from weft._base.types import AnyCallable, Arg
from weft.ao.quantization.fuser_method_mappings import Fuser, get_fuser_method
from weft.nn._linear import Identity
from weft.nn._lookup import AnyModule
from weft.nn._module import Module
from weft.nn.utils.parametrize import type_before_parametrizations

_M = TypeVar("_M", bound=Module)


def fuse_known_modules(
    mod_list: Sequence[AnyModule],
    is_qat: bool,
    additional_fuser_method_mapping: dict[tuple[type, ...], Fuser] | None = None,
) -> list[Module]:
    """The fused layer in the first place, identities in the others. Hooks before and after the layers move to it."""
    types = tuple(map(type_before_parametrizations, mod_list))
    first, last = mod_list[0], mod_list[-1]
    result = get_fuser_method(types, additional_fuser_method_mapping)(is_qat, *mod_list)
    for hook in first._forward_pre_hooks.values():
        result.register_forward_pre_hook(hook)
    for hook in last._forward_hooks.values():
        result.register_forward_hook(hook)
    first._forward_pre_hooks.clear()
    last._forward_hooks.clear()
    rest = [Identity().train(first.training) for _ in mod_list[1:]]
    return [result, *rest]


def _fuse(
    model: _M,
    modules_to_fuse: Arg,
    is_qat: bool,
    inplace: bool,
    fuser_func: AnyCallable,
    config: Mapping[str, Arg] | None,
) -> _M:
    model = model if inplace else copy.deepcopy(model)
    single = all(isinstance(name, str) for name in modules_to_fuse)
    more = (config or {}).get("additional_fuser_method_mapping", {})
    for names in [modules_to_fuse] if single else modules_to_fuse:
        fused = fuser_func([model.get_submodule(name) for name in names], is_qat, more)
        for name, module in zip(names, fused, strict=True):
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, module)
    return model


def fuse_modules(
    model: _M,
    modules_to_fuse: object,
    inplace: bool = False,
    fuser_func: AnyCallable = fuse_known_modules,
    fuse_custom_config_dict: Mapping[str, object] | None = None,
) -> _M:
    """A copy of a model in evaluation mode (itself if `inplace`) in which layers are fused.

    `modules_to_fuse` is a list of names, or a list of such lists: a convolution or an affine layer with its
    normalisation, which is folded in, and a ReLU. The first of them becomes the fused layer, and the others identities.
    """
    return _fuse(model, modules_to_fuse, False, inplace, fuser_func, fuse_custom_config_dict)


def fuse_modules_qat(
    model: _M,
    modules_to_fuse: object,
    inplace: bool = False,
    fuser_func: AnyCallable = fuse_known_modules,
    fuse_custom_config_dict: Mapping[str, object] | None = None,
) -> _M:
    """As `fuse_modules`, for a model in training mode: normalisation stays a layer of its own within the fused one."""
    return _fuse(model, modules_to_fuse, True, inplace, fuser_func, fuse_custom_config_dict)
