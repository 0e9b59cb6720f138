"""Modes that see every operator of PyTorch's, and what subclasses with `__torch_dispatch__` are written with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from weft._base.types import Args, Kwargs, Result
from weft._interop.aten.functions import modes, set_modes
from weft._tensor.overriding import setting
from weft._tensor.tensor import Tensor
from weft.ops._aten import AtenOverload


class TorchDispatchMode:
    """Is asked before each operator in a block, `with Mode():`, whatever its arguments are.

    A subclass defines `__torch_dispatch__(self, func, types, args=(), kwargs=None)`. `func` is an operator, such as
    `torch.ops.aten.add.Tensor`, and not the function that was called. While it runs, the mode is off, and the next
    outer mode is on.

    makes_fakes  whether tensors in its block have no elements, so that loading reads none
    """

    makes_fakes = False

    @classmethod
    def is_infra_mode(cls) -> bool:
        """False: modes of PyTorch's own machinery come first in its stack."""
        return False

    def __torch_dispatch__(
        self, func: AtenOverload, types: Iterable[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> Result:
        """What is called in place of `func(*args, **kwargs)`; `types` are the classes of arguments that dispatch."""
        raise NotImplementedError(f"{type(self).__name__} must define __torch_dispatch__")

    def __enter__(self) -> Self:
        set_modes((*modes(), self))
        return self

    def __exit__(self, *_: object) -> None:
        set_modes(modes()[:-1])


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that calls every operator."""

    def __torch_dispatch__(
        self, func: AtenOverload, types: Iterable[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> Result:
        """The result of `func`."""
        return func(*args, **(kwargs or {}))


def _get_current_dispatch_mode() -> TorchDispatchMode | None:
    stack = modes()
    return stack[-1] if stack else None


def _get_current_dispatch_mode_stack() -> list[TorchDispatchMode]:
    return list(modes())


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """Whether a mode is on."""
    return bool(modes())


@contextmanager
def _disable_current_modes() -> Iterator[list[TorchDispatchMode]]:
    stack = modes()
    with setting(dispatchers=()):
        yield list(stack)


@contextmanager
def _pop_mode_temporarily(k: object = None) -> Iterator[TorchDispatchMode]:
    stack = modes()
    with setting(dispatchers=stack[:-1]):
        yield stack[-1]


# --- subclasses that hold tensors ---------------------------------------------------------------------------------


def is_traceable_wrapper_subclass(t: object) -> bool:
    """Whether this is a tensor of a subclass that says which tensors it holds.

    It has `__tensor_flatten__()`, which gives the names of the attributes that hold them and what else it is made of,
    and the static `__tensor_unflatten__(inner_tensors, context, outer_size, outer_stride)`.
    """
    return is_traceable_wrapper_subclass_type(type(t))


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """Whether the tensors of a class say so."""
    return (
        issubclass(t, Tensor)
        and t is not Tensor
        and hasattr(t, "__tensor_flatten__")
        and hasattr(t, "__tensor_unflatten__")
    )


def transform_subclass(
    t: Any,
    callback: Callable[[str, Tensor], Tensor],
    outer_size: Iterable[int] | None = None,
    outer_stride: Iterable[int] | None = None,
) -> Any:
    """The same of `callback(name, tensor)` for each tensor that `t` holds."""
    names, context = t.__tensor_flatten__()
    inner = {name: callback(name, getattr(t, name)) for name in names}
    size = t.size() if outer_size is None else outer_size
    stride = t.stride() if outer_stride is None else outer_stride
    return type(t).__tensor_unflatten__(inner, context, size, stride)


def return_and_correct_aliasing(func: AtenOverload, args: Args, kwargs: Kwargs, out: Result) -> Result:
    """What `__torch_dispatch__` is to return for an operator that it has computed as `out`.

    An operator that writes to its arguments returns those; one that gives a view, `out` itself.
    """
    schema = func._schema
    if not schema.is_mutable:
        return out
    bound = dict(zip([x.name for x in schema.arguments], args, strict=False)) | (kwargs or {})
    by_alias = {
        name: bound.get(x.name)
        for x in schema.arguments
        if x.alias_info is not None and x.alias_info.is_write
        for name in x.alias_info.before_set
    }
    results = [
        by_alias[next(iter(x.alias_info.before_set))] if x.alias_info is not None else own
        for x, own in zip(schema.returns, out if isinstance(out, tuple | list) else [out], strict=False)
    ]
    return results[0] if len(schema.returns) == 1 else tuple(results) if results else out
