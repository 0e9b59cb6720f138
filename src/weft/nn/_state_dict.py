"""State dicts: collecting the tensors of a tree of modules by name, and loading them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from weft._base.device import META
from weft._base.guards import is_mapping
from weft._base.site import warn_user
from weft._base.state import using
from weft._base.types import Arg, SavedState
from weft._tensor.dim_names import names_of
from weft._tensor.kind_names import advice
from weft._tensor.tensor import Tensor, placed_with
from weft.errors import ArgumentError, PreconditionError, StateDictError
from weft.nn._lazy_parameter import is_lazy
from weft.nn._parameter import Parameter
from weft.nn._tables import (
    buffers_of,
    children_of,
    load_state_dict_post_hooks_of,
    loader_of,
    non_persistent_of,
    parameters_of,
    saver_of,
    state_dict_hooks_of,
    state_dict_pre_hooks_of,
    version_of,
)

EXTRA = "_extra_state"

Metadata: TypeAlias = dict[str, Any]
"""Facts about a module's part of a state dict: the version of its layout, and, while it is loaded, how."""


class _Keys(NamedTuple):
    missing_keys: list[str]
    unexpected_keys: list[str]


class IncompatibleKeys(_Keys):
    """Keys that only the module has, and keys that only the state dict has."""

    __slots__ = ()

    def __repr__(self) -> str:
        return super().__repr__() if self.missing_keys or self.unexpected_keys else "<All keys matched successfully>"

    __str__ = __repr__


class StateDict(OrderedDict[str, Any]):
    """Tensors by name. `_metadata` has the versions of the modules that they come from."""

    _metadata: dict[str, dict[str, Any]]

    def __init__(self, *args: Arg, metadata: dict[str, Metadata] | None = None) -> None:
        super().__init__(*args)
        self._metadata = {} if metadata is None else metadata


def collect(module: object, destination: Any, prefix: str, keep_vars: bool) -> SavedState:
    """Put the state of a module and of all modules below it into `destination`."""
    destination = StateDict() if destination is None else destination
    metadata = getattr(destination, "_metadata", None)
    local = {"version": version_of(module)}
    if metadata is not None:
        metadata[prefix[:-1]] = local
    for hook in list(state_dict_pre_hooks_of(module).values()):
        hook(module, prefix, keep_vars)
    saver_of(module)(destination, prefix, keep_vars)
    for name, child in children_of(module).items():
        if child is not None:
            child.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
    for hook in list(state_dict_hooks_of(module).values()):
        replacement = hook(module, destination, prefix, local)
        if replacement is not None:
            destination = replacement
    return destination


class PostHook(NamedTuple):
    """A hook on state dicts whose result must be None."""

    function: Callable[..., None]

    def __call__(self, *args: Arg) -> None:
        if self.function(*args) is not None:
            raise StateDictError("state_dict post-hook must return None")


def local_state(module: object) -> Iterator[tuple[str, Tensor]]:
    """The parameters and persistent buffers of one module."""
    for name, tensor in (*parameters_of(module).items(), *buffers_of(module).items()):
        if tensor is not None and name not in non_persistent_of(module):
            yield name, tensor


Writes = list[Callable[[], None]]


def load(module: object, state_dict: object, strict: bool, assign: bool) -> IncompatibleKeys:
    """Load a state dict into a module. Nothing is written unless all of it fits."""
    if not is_mapping(state_dict):
        raise ArgumentError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
    metadata: Mapping[str, Metadata] = getattr(state_dict, "_metadata", None) or {}
    keys = IncompatibleKeys([], [])
    errors: list[str] = []
    writes: Writes = []

    def plan(at: object, state: SavedState, prefix: str) -> None:
        local = {**metadata.get(prefix[:-1], {}), "assign_to_params_buffers": assign, "writes": writes}
        loader_of(at)(state, prefix, local, True, keys.missing_keys, keys.unexpected_keys, errors)
        for name, child in children_of(at).items():
            if child is not None:
                below = f"{prefix}{name}."
                plan(child, StateDict((k, v) for k, v in state.items() if k.startswith(below)), below)

    plan(module, StateDict(state_dict), "")
    fits = not errors and not (strict and any(keys))
    if fits:
        write(writes)
    _run_post_hooks(module, keys)
    _refuse(module, keys if strict else IncompatibleKeys([], []), errors)
    if not fits:  # a hook may have removed the missing keys
        write(writes)
    return keys


def write_or_plan(writes: Writes, local: Metadata) -> None:
    """Within `load`, keep a module's writes until everything is known to fit; elsewhere, make them at once."""
    if "writes" in local:
        local["writes"].extend(writes)
    else:
        write(writes)


def write(writes: Writes) -> None:
    """Make planned writes, outside the tape."""
    with using(grad=False):
        for put in writes:
            put()


def _run_post_hooks(module: object, keys: IncompatibleKeys) -> None:
    for child in children_of(module).values():
        if child is not None:
            _run_post_hooks(child, keys)
    for hook in list(load_state_dict_post_hooks_of(module).values()):
        if hook(module, keys) is not None:
            raise PreconditionError(
                "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new values, "
                "if incompatible_keys need to be modified, it should be done inplace."
            )


def _refuse(module: object, keys: IncompatibleKeys, errors: list[str]) -> None:
    texts: list[str] = []
    for what, names in (("Missing", keys.missing_keys), ("Unexpected", keys.unexpected_keys)):
        if names:
            quoted = ", ".join([f'"{key}"' for key in names])
            texts.append(f"{what} key(s) in state_dict: {quoted}. ")
    if texts or errors:
        names = "\n\t".join([*texts, *errors])
        raise StateDictError(f"Error(s) in loading state_dict for {type(module).__name__}:\n\t{names}")


def plan_tensors(
    module: object, state: SavedState, prefix: str, local: Metadata, errors: list[str], writes: Writes
) -> list[str]:
    """Plan the writes of one module's own tensors; returns the keys that are missing."""
    missing: list[str] = []
    for name, tensor in local_state(module):
        key = prefix + name
        if key not in state:
            missing.append(key)
            continue
        source = state[key]
        if not isinstance(source, Tensor):
            errors.append(
                f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from '
                f"checkpoint but received {type(source)}{advice(source)}"
            )
            continue
        lazy = is_lazy(tensor)
        # PyTorch had no tensors without dims before 0.4, so older files have vectors of one there.
        if not lazy and not tensor.ndim and source.shape == (1,):
            source = source[0]
        if not lazy and source.shape != tensor.shape:
            errors.append(
                f"size mismatch for {key}: copying a param with shape {source.shape} from checkpoint, the shape in "
                f"current model is {tensor.shape}."
            )
            continue
        assigned = local.get("assign_to_params_buffers")
        if not (lazy or is_lazy(source) or assigned) and not _may_be_copied(source, tensor):
            errors.append(
                f"names mismatch for {key}: copying a param with names {list(names_of(source))} from checkpoint, the "
                f"names in current model are {list(names_of(tensor))}."
            )
            continue
        if assigned:
            writes.append(_assignment(module, name, tensor, source))
        elif not is_lazy(source):
            if tensor.device is META and source.device is not META:
                warn_user(
                    f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the "
                    "current model, which is a no-op. (Did you mean to pass `assign=True` to assign items in the state "
                    "dictionary to their corresponding key in the module instead of copying?)"
                )
            writes.append(_copy(tensor, source))
    return missing


def _may_be_copied(source: Tensor, tensor: Tensor) -> bool:
    """Whether names of dims allow it: one of the two has none, or both have the same."""
    return not (source.has_names() and tensor.has_names()) or names_of(source) == names_of(tensor)


def _copy(tensor: Any, source: Tensor) -> Callable[[], None]:
    def put() -> None:
        if is_lazy(tensor):
            tensor.materialize(source.shape)
        tensor.copy_(placed_with(tensor, source.detach()))

    return put


def _assignment(module: object, name: str, tensor: Tensor, source: Tensor) -> Callable[[], None]:
    def put() -> None:
        value = source
        if isinstance(tensor, Parameter):
            value = source if isinstance(source, Parameter) else Parameter(source)
            value.requires_grad_(tensor.requires_grad)
        setattr(module, name, value)

    return put


def unexpected(module: object, state: SavedState, prefix: str, extra_key: str) -> Iterator[str]:
    """Keys under `prefix` that belong to no tensor and no child of the module."""
    own = {name for name, _ in local_state(module)}
    for key in state:
        if key.startswith(prefix) and key != extra_key:
            first, dot, _ = key[len(prefix) :].partition(".")
            if first not in (children_of(module) if dot else own):
                yield key
