"""Modules that take sizes from their first input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft._base.types import Arg, Args, Kwargs
from weft.errors import ModuleError
from weft.nn._lazy_parameter import is_lazy
from weft.nn._tables import buffers_of, name_of, parameters_of

if TYPE_CHECKING:
    from weft.nn._module import Module


class LazyModuleMixin:
    """A mixin for modules with `UninitializedParameter`s; it must come before the module's class among the bases.

    The first call runs `initialize_parameters` with its arguments, which sets the shapes of all of them; then the
    module's class becomes `cls_to_become`, if that is set. A state dict that has shapes sets them, too.
    """

    cls_to_become: type[Any] | None = None

    def __init__(self, *args: Arg, **kwargs: Arg) -> None:
        super().__init__(*args, **kwargs)
        module: Any = self
        self._load_hook = module._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = module.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def _lazy_load_hook(self, *_: Arg) -> None:
        """Does nothing, as `load_state_dict` sets shapes: PyTorch needs its hook in files of whole modules."""

    def initialize_parameters(self, *args: Arg, **kwargs: Arg) -> None:
        """Set the shapes of all parameters and buffers from the first call's arguments. Subclasses must override it."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether the shape of a parameter or buffer of this module itself, not of its children, is unknown."""
        module: Any = self
        return any(map(is_lazy, (*parameters_of(module).values(), *buffers_of(module).values())))

    def _infer_parameters(self, module: Module, args: Args, kwargs: Kwargs | None = None) -> None:
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise ModuleError(f"module {name_of(module)} has not been fully initialized")
        for name in ("_initialize_hook", "_load_hook"):
            getattr(module, name).remove()
            delattr(module, name)
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become
