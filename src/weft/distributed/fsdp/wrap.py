"""Which submodules are wrapped by themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias

from weft._base.cell import LocalCell
from weft._base.types import Arg, Kwargs
from weft.errors import PreconditionError, UnsupportedCallError, ValueRangeError
from weft.nn import Module, ModuleDict, ModuleList, MultiheadAttention, Parameter

__all__ = [
    "CustomPolicy",
    "ModuleWrapPolicy",
    "always_wrap_policy",
    "enable_wrap",
    "lambda_auto_wrap_policy",
    "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy",
    "wrap",
]

Options: TypeAlias = Kwargs


def always_wrap_policy(*args: Arg, **kwargs: Arg) -> bool:
    """Wrap every module."""
    return True


def lambda_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Module], bool]
) -> bool:
    """Wrap the modules for which a function says so."""
    return True if recurse else lambda_fn(module)


def transformer_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: Collection[type[Module]]
) -> bool:
    """Wrap the modules of these classes."""
    return True if recurse else isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: set[type[Module]] | None = None,
    exclude_wrap_modules: set[type[Module]] | None = None,
) -> bool:
    """Wrap modules with at least `min_num_params` elements in parameters that are not wrapped yet.

    Modules of `force_leaf_modules` are not looked into, those of `exclude_wrap_modules` are not wrapped.
    """
    leaves = {MultiheadAttention} if force_leaf_modules is None else force_leaf_modules
    excluded = {ModuleList, ModuleDict} if exclude_wrap_modules is None else exclude_wrap_modules
    return nonwrapped_numel >= min_num_params and not isinstance(module, tuple(leaves if recurse else excluded))


class _Policy(ABC):
    @abstractmethod
    def choose(self, root: Module, ignored: Collection[Module], options: Options) -> dict[Module, Options]:
        """The modules to wrap, with the options of their wrappers."""


class ModuleWrapPolicy(_Policy):
    """Wrap the modules of some classes."""

    def __init__(self, module_classes: Iterable[type[Module]]) -> None:
        self._module_classes = set(module_classes)

    def choose(self, root: Module, ignored: Collection[Module], options: Options) -> dict[Module, Options]:
        """The modules to wrap, with the options of their wrappers."""
        kinds = tuple(self._module_classes)
        return {m: dict(options) for m in root.modules() if m not in ignored and isinstance(m, kinds)}

    def __call__(self, module: Module, recurse: bool, *args: Arg, **kwargs: Arg) -> bool:
        return True if recurse else isinstance(module, tuple(self._module_classes))

    def __repr__(self) -> str:
        return f"{super().__repr__()}({self._module_classes})"


class CustomPolicy(_Policy):
    """Wrap the modules for which a function returns True, or a dict of options of their wrappers."""

    def __init__(self, lambda_fn: Callable[[Module], bool | Options]) -> None:
        self._lambda_fn = lambda_fn

    def choose(self, root: Module, ignored: Collection[Module], options: Options) -> dict[Module, Options]:
        """The modules to wrap, with the options of their wrappers."""
        chosen: dict[Module, Options] = {}
        for module in root.modules():
            wanted = False if module in ignored else self._lambda_fn(module)
            _require_options(wanted)
            if wanted:
                chosen[module] = options | (wanted if isinstance(wanted, dict) else {})
        return chosen


def _require_options(wanted: object) -> None:
    if not isinstance(wanted, (dict, bool)):
        raise ValueRangeError(
            f"The lambda_fn passed to CustomPolicy should return False/True or a kwarg dict, but it returned {wanted}"
        )


Policy: TypeAlias = _Policy | Callable[..., bool]
"""What says which modules are wrapped."""


def wrap_submodules(
    root: Module,
    policy: Policy,
    wrapper: Callable[..., Module],
    ignored_modules: Collection[Module],
    ignored_parameters: Collection[Parameter],
    options: Options,
) -> None:
    """Wrap the modules below `root` that a policy chooses, the inner ones first."""
    if isinstance(wrapper, type):
        for child in root.modules():
            if isinstance(child, wrapper):
                raise PreconditionError(f"Child module {child} is already wrapped by {wrapper}")
    if isinstance(policy, _Policy):
        _wrap_chosen(root, policy.choose(root, ignored_modules, options), wrapper, {})
    else:
        _wrap_children(root, policy, wrapper, ignored_modules, ignored_parameters, options)


def _wrap_chosen(
    parent: Module, chosen: dict[Module, Options], wrapper: Callable[..., Module], wrapped: dict[Module, Module]
) -> None:
    for name, child in list(parent.named_children()):
        if child not in wrapped:
            _wrap_chosen(child, chosen, wrapper, wrapped)
            wrapped[child] = wrapper(child, **chosen[child]) if child in chosen else child
        if wrapped[child] is not child:
            setattr(parent, name, wrapped[child])


def _wrap_children(
    module: Module,
    policy: Callable[..., bool],
    wrapper: Callable[..., Module],
    ignored_modules: Collection[Module],
    ignored_parameters: Collection[Parameter],
    options: Options,
) -> int:
    """Wrap what the policy says below a module; returns how many elements of parameters are wrapped now."""
    numel = sum(p.numel() for p in module.parameters() if p not in ignored_parameters)
    if not policy(module=module, recurse=True, nonwrapped_numel=numel):
        return 0
    total = 0
    for name, child in list(module.named_children()):
        if child in ignored_modules:
            continue
        whole = sum(p.numel() for p in child.parameters() if p not in ignored_parameters)
        inner = _wrap_children(child, policy, wrapper, ignored_modules, ignored_parameters, options)
        looks = policy(module=child, recurse=True, nonwrapped_numel=whole)
        # Children before their parents, so that a policy by size counts only what is not wrapped yet.
        if looks and policy(module=child, recurse=False, nonwrapped_numel=whole - inner):
            setattr(module, name, wrapper(child, **options))
            inner = whole
        total += inner
    return total


_wrapper = LocalCell[Callable[..., Module] | None]("what modules are wrapped with", None)


@contextmanager
def enable_wrap(*, wrapper_cls: Callable[..., Module], **wrapper_kwargs: Arg) -> Generator[None]:
    """Within the block, `wrap(module)` is `wrapper_cls(module, **wrapper_kwargs)`."""
    if _wrapper.get() is not None:
        raise UnsupportedCallError(
            "You are already within an autowrap context and we currently do not supported nested autowrap."
        )
    with _wrapper.within(partial(wrapper_cls, **wrapper_kwargs)):
        yield


def wrap(module: Module, **wrap_overrides: Arg) -> Module:
    """The module, wrapped within a block of `enable_wrap`, and as it is elsewhere."""
    wrapper = _wrapper.get()
    return module if wrapper is None else wrapper(module, **wrap_overrides)


def _or_policy(module: Module, recurse: bool, nonwrapped_numel: int, policies: Iterable[Callable[..., bool]]) -> bool:
    """Whether one of several policies says to wrap a module."""
    return any(policy(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel) for policy in policies)
