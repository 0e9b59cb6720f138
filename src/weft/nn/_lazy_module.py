"""Modules that take sizes from their first input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft._base.types import Arg, Args, Kwargs
from weft.errors import ModuleError
from weft.nn._lazy_parameter import is_lazy

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
        self._initialize_hook = module.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def initialize_parameters(self, *args: Arg, **kwargs: Arg) -> None:
        """Set the shapes of all parameters and buffers from the first call's arguments. Subclasses must override it."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether the shape of a parameter or buffer of this module itself, not of its children, is unknown."""
        module: Any = self
        return any(map(is_lazy, (*module._parameters.values(), *module._buffers.values())))

    def _infer_parameters(self, module: Module, args: Args, kwargs: Kwargs | None = None) -> None:
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise ModuleError(f"module {module._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        del module._initialize_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become
