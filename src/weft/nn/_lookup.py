"""Look-up in a tree of modules: by path, by iteration, and for printing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

from weft._base.guards import is_a
from weft._base.of_pytorch import registers_in_pytorch
from weft._base.types import Args, AttributeValue, Kwargs
from weft._tensor.kind_names import advice
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ValueRangeError
from weft.nn._parameter import Parameter
from weft.nn._tables import Hooks, name_of

T = TypeVar("T", Parameter, Tensor)


AnyModule: TypeAlias = Any
"""A module, whose attributes only its user knows."""


class Lookup:
    """The methods of `Module` that read the tree."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _non_persistent_buffers_set: set[str]
    _modules: dict[str, Any]  # modules, which this file knows as `Lookup`, or None
    _forward_pre_hooks: Hooks
    _forward_pre_hooks_with_kwargs: Hooks
    _forward_hooks: Hooks
    _forward_hooks_with_kwargs: Hooks
    _forward_hooks_always_called: Hooks
    _is_full_backward_hook: bool | None
    _backward_pre_hooks: Hooks
    _backward_hooks: Hooks
    _state_dict_hooks: Hooks
    _state_dict_pre_hooks: Hooks
    _load_state_dict_pre_hooks: Hooks
    _load_state_dict_post_hooks: Hooks

    # --- by path ----------------------------------------------------------------------------------------------

    def get_submodule(self, target: str) -> AttributeValue:
        """The module at a dotted path; `AttributeError` if there is none."""
        module: AttributeValue = self
        for name in target.split(".") if target else ():
            module = _attribute(module, name)
            if not isinstance(module, Lookup):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Lookup, strict: bool = False) -> None:
        """Put a module at a dotted path. With `strict`, there must already be one."""
        if not target:
            raise ValueRangeError("Cannot set the submodule without a target name!")
        if not is_a(module, Lookup):
            raise ValueRangeError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if (strict or hasattr(parent, name)) and not isinstance(_attribute(parent, name), Lookup):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path; `AttributeError` if there is none."""
        path, _, name = target.rpartition(".")
        parameter = _attribute(self.get_submodule(path), name)
        if not isinstance(parameter, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return parameter

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path; `AttributeError` if there is none."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        buffer = _attribute(module, name)
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return buffer

    # --- by iteration -----------------------------------------------------------------------------------------

    def named_modules(
        self, memo: set[AnyModule] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, AnyModule]]:
        """This module and all below it, with their paths; each once unless `remove_duplicate` is false."""
        seen: set[AnyModule] = set() if memo is None else memo
        own: Any = self  # every object with these methods is a module
        if own in seen:
            return
        if remove_duplicate:
            seen.add(own)
        yield prefix, own
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(seen, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[AnyModule]:
        """This module and all below it; each once unless `remove_duplicate` is false."""
        return (module for _, module in self.named_modules(remove_duplicate=remove_duplicate))

    def named_children(self) -> Iterator[tuple[str, AnyModule]]:
        """The direct children of this module, with their names, each once."""
        seen: set[AnyModule] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[AnyModule]:
        """The direct children of this module, each once."""
        return (module for _, module in self.named_children())

    def _named_members(
        self,
        members: Callable[[AnyModule], Iterable[tuple[str, T | None]]],
        prefix: str,
        recurse: bool,
        remove_duplicate: bool,
    ) -> Iterator[tuple[str, T]]:
        seen: set[T] = set()
        own: Any = self
        walk = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, own)]
        for path, module in walk:
            for name, member in members(module):
                if member is None or member in seen:
                    continue
                if remove_duplicate:
                    seen.add(member)
                yield f"{path}.{name}" if path else name, member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """All parameters with their paths; each once unless `remove_duplicate` is false."""
        return self._named_members(lambda module: module._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, each once; only those of this module itself if not `recurse`."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """All buffers with their paths; each once unless `remove_duplicate` is false."""
        return self._named_members(lambda module: module._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers, each once; only those of this module itself if not `recurse`."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    # --- for printing -----------------------------------------------------------------------------------------

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """The text in the parentheses of `repr`, before the child modules."""
        return ""

    def _shown_modules(self) -> Iterable[tuple[str, Lookup | None]]:
        """The child modules that `repr` shows."""
        return self._modules.items()

    def __repr__(self) -> str:
        extra = self.extra_repr()
        own = extra.split("\n") if extra else []
        below = [f"({name}): {indented(repr(module))}" for name, module in self._shown_modules()]
        if not own and not below:
            return f"{self._get_name()}()"
        if len(own) == 1 and not below:
            return f"{self._get_name()}({extra})"
        return f"{self._get_name()}(\n  " + "\n  ".join(own + below) + "\n)"

    def __dir__(self) -> list[str]:
        names = {*super().__dir__(), *self._parameters, *self._modules, *self._buffers}
        return sorted(name for name in names if not name[0].isdigit())


def options_repr(module: object, **usual: object) -> str:
    """The attributes that differ from these defaults, for `repr`, each after a comma."""
    own = {name: getattr(module, name) for name in usual}
    return "".join(f", {name}={value}" for name, value in own.items() if value != usual[name])


def indented(text: str) -> str:
    """The text with all lines but the first indented by two spaces."""
    return text.replace("\n", "\n  ")


def _attribute(module: Lookup, name: str) -> AttributeValue:
    if not hasattr(module, name):
        raise AttributeError(f"{name_of(module)} has no attribute `{name}`")
    return getattr(module, name)


def name_of_type(x: object) -> str:
    """The name of an object's type in error texts."""
    kind = type(x)
    if isinstance(x, Tensor) and kind is Tensor:
        return x.type()
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def surplus(name: str, args: Args, kwargs: Kwargs) -> str:
    """The error's text for arguments that the constructor does not take."""
    if kwargs:
        return f"{name}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'"
    return f"{name}.__init__() takes 1 positional argument but {len(args) + 1} were given"


def require_name(module: object, kind: str, name: object, registered: Mapping[str, object] | None) -> None:
    """Refuse a name under which nothing can be registered."""
    if registered is None:
        raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
    if not isinstance(name, str):
        raise ArgumentError(f"{kind} name should be a string. Got {name_of_type(name)}")
    if "." in name:
        got = f", got: {name}" if kind == "module" else ""
        raise KeyError(f'{kind} name can\'t contain "."{got}')
    if not name:
        raise KeyError(f'{kind} name can\'t be empty string ""')
    if name not in registered and hasattr(module, name):
        raise KeyError(f"attribute '{name}' already exists")


def assignable(kind: str, name: str, value: object) -> None:
    """Refuse a value that cannot replace the object registered under a name, and PyTorch's modules and parameters.

    These would be plain attributes, so that an optimizer, a state dict or `train()` would silently pass them over.
    """
    if registers_in_pytorch(value):
        what = f"'{name_of_type(value)}' as attribute '{name}'"
        raise ArgumentError(f"cannot assign {what} of a module of Weft, which would not register it{advice(value)}")
    if value is None or not kind or (kind == "_buffers" and isinstance(value, Tensor)):
        return
    word, wanted = {
        "_parameters": ("parameter", "torch.nn.Parameter or None"),
        "_modules": ("child module", "torch.nn.Module or None"),
        "_buffers": ("buffer", "torch.nn.Buffer, torch.Tensor or None"),
    }[kind]
    raise ArgumentError(f"cannot assign '{name_of_type(value)}' as {word} '{name}' ({wanted} expected){advice(value)}")
