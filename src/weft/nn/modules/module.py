"""The base of all layers and models, and hooks on all of them, under PyTorch's import path."""

from weft.nn._hooks import has_any_global_hook as _has_any_global_hook  # noqa: F401  what PyTorch calls it
from weft.nn._hooks import register_module_backward_hook as register_module_backward_hook
from weft.nn._hooks import register_module_buffer_registration_hook as register_module_buffer_registration_hook
from weft.nn._hooks import register_module_forward_hook as register_module_forward_hook
from weft.nn._hooks import register_module_forward_pre_hook as register_module_forward_pre_hook
from weft.nn._hooks import register_module_full_backward_hook as register_module_full_backward_hook
from weft.nn._hooks import register_module_full_backward_pre_hook as register_module_full_backward_pre_hook
from weft.nn._hooks import register_module_module_registration_hook as register_module_module_registration_hook
from weft.nn._hooks import register_module_parameter_registration_hook as register_module_parameter_registration_hook
from weft.nn._module import Module as Module
from weft.nn._state_dict import EXTRA as _EXTRA_STATE_KEY_SUFFIX  # noqa: F401  what PyTorch calls it
from weft.nn._state_dict import IncompatibleKeys as _IncompatibleKeys  # noqa: F401  what PyTorch calls it
