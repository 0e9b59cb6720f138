"""What a module has under names of PyTorch's that begin with an underscore, for functions outside of its class."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from operator import attrgetter, methodcaller
from typing import Any, TypeAlias

from weft._base.types import Arg, SavedState
from weft._tensor.tensor import Tensor
from weft.nn._parameter import Parameter

Hooks: TypeAlias = OrderedDict[int, Any]
"""Hooks, which users write, by the numbers of their handles."""

HooksOf = Callable[[object], Hooks]

parameters_of: Callable[[object], dict[str, Parameter | None]] = attrgetter("_parameters")
buffers_of: Callable[[object], dict[str, Tensor | None]] = attrgetter("_buffers")
non_persistent_of: Callable[[object], set[str]] = attrgetter("_non_persistent_buffers_set")
children_of: Callable[[object], dict[str, Arg]] = attrgetter("_modules")
forward_pre_hooks_of: HooksOf = attrgetter("_forward_pre_hooks")
forward_hooks_of: HooksOf = attrgetter("_forward_hooks")
state_dict_hooks_of: HooksOf = attrgetter("_state_dict_hooks")
state_dict_pre_hooks_of: HooksOf = attrgetter("_state_dict_pre_hooks")
load_state_dict_pre_hooks_of: HooksOf = attrgetter("_load_state_dict_pre_hooks")
load_state_dict_post_hooks_of: HooksOf = attrgetter("_load_state_dict_post_hooks")
version_of: Callable[[object], int] = attrgetter("_version")
saver_of: Callable[[object], Callable[[SavedState, str, bool], None]] = attrgetter("_save_to_state_dict")
loader_of: Callable[[object], Callable[..., None]] = attrgetter("_load_from_state_dict")
name_of: Callable[[object], str] = methodcaller("_get_name")
