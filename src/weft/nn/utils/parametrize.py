"""Parametrizations: parameters and buffers computed from others each time they are read.

A tensor `name` of a module is computed by the modules in `module.parametrizations[name]`, one after another, from the
`original` of that list, or from `original0`, `original1` and so on. The module gets a class derived from its own, in
which `name` is a property.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, TypeVar

from weft._base.cell import LocalCell
from weft._base.dtype import DType
from weft._base.guards import is_sequence
from weft._base.state import using
from weft._base.types import Arg, AttributeValue, Result
from weft._tensor.tensor import Tensor
from weft.errors import ModuleError, ValueRangeError
from weft.nn._containers import ModuleDict, ModuleList
from weft.nn._module import Module
from weft.nn._parameter import Parameter
from weft.nn._tables import buffers_of, parameters_of

M = TypeVar("M", bound="Module")


class _Computed:
    """The tensors that have been computed in blocks of `cached`, by module and name."""

    def __init__(self) -> None:
        self.tensors: dict[tuple[int, str], Any] = {}


_computed = LocalCell[_Computed | None]("the parametrized tensors of a block", None)


@contextmanager
def cached() -> Generator[None]:
    """Compute each parametrized tensor once while the block runs, however often it is read."""
    if _computed.get() is not None:
        yield
        return
    computed = _Computed()
    try:
        with _computed.within(computed):
            yield
    finally:
        computed.tensors.clear()  # replays that are valid within the block refer to it


class ParametrizationList(ModuleList):
    """The modules that compute one tensor, and their inputs. `register_parametrization` creates it.

    The input, `original`, is the tensor passed through the modules' `right_inverse`, from the last module to the first.
    If the first module's `right_inverse` returns several tensors, they are `original0`, `original1` and so on.
    """

    original: Any
    unsafe: bool

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ValueRangeError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        with using(grad=False):
            value: Any = original
            for module in reversed(self._as_list()):
                value = _inverse(module, value, value)
        self.is_tensor = isinstance(value, Tensor)
        if self.is_tensor:
            self.ntensors = 1
            _keep_kind(original, value)
            # A parametrization that does not fit must leave the module's tensor as it was.
            before = original.detach().clone()
            # The same object stays the parameter, so an optimizer that has it goes on updating it.
            original.data = value.detach()
            _register(self, "original", original)
        else:
            before = original
            self._register_several(original, value)
        if unsafe:
            return
        try:
            _require(self(), shape, dtype, "`unsafe` flag", "unparametrized {}", "parametrized {}")
        except Exception:
            original.data = before
            raise

    def _register_several(self, original: Tensor, value: object) -> None:
        if not is_sequence(value):
            raise ValueRangeError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(value).__name__}"
            )
        self.ntensors = len(value)
        for at, tensor in enumerate(value):
            if not isinstance(tensor, Tensor):
                raise ValueRangeError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got element "
                    f"{at} of the sequence with type {type(tensor).__name__}."
                )
            one: Any = Parameter(tensor.detach()) if isinstance(original, Parameter) else tensor
            _register(self, f"original{at}", one.requires_grad_(original.requires_grad))

    def _names(self) -> list[str]:
        return ["original"] if self.is_tensor else [f"original{at}" for at in range(self.ntensors)]

    def _originals(self) -> list[Tensor]:
        return [getattr(self, name) for name in self._names()]

    def right_inverse(self, value: Tensor | Sequence[Tensor]) -> None:
        """Set the originals such that the tensor becomes `value`, if the modules' `right_inverse` is exact."""
        with using(grad=False):
            for module in reversed(self._as_list()):
                if not hasattr(module, "right_inverse"):
                    raise ModuleError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = module.right_inverse(value)
        for original, new in zip(self._originals(), self._checked(value), strict=True):
            original.data = new.detach()

    def _checked(self, value: object) -> Sequence[Tensor]:
        """The results of `right_inverse`, checked: one new tensor for each original."""
        if self.is_tensor:
            if not isinstance(value, Tensor):
                raise ValueRangeError(f"`right_inverse` should return a tensor. Got {type(value).__name__}")
            if value.dtype is not self.original.dtype:
                raise ValueRangeError(
                    f"The tensor returned by `right_inverse` has dtype {value.dtype} while `original` has dtype "
                    f"{self.original.dtype}"
                )
            return [value]
        if not is_sequence(value):
            raise ValueRangeError(f"'right_inverse' must return a sequence of tensors. Got {type(value).__name__}.")
        if len(value) != self.ntensors:
            raise ValueRangeError(
                f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got a sequence of "
                f"length {len(value)}."
            )
        for at, (new, original) in enumerate(zip(value, self._originals(), strict=True)):
            if not isinstance(new, Tensor):
                raise ValueRangeError(
                    "'right_inverse' must return a sequence of tensors or reference-type opaques. Got element "
                    f"{at} of type {type(new).__name__}."
                )
            if new.dtype is not original.dtype:
                raise ValueRangeError(
                    f"Tensor {at} returned by `right_inverse` has dtype {new.dtype} while `original{at}` has dtype "
                    f"{original.dtype}"
                )
        return value

    def forward(self) -> Tensor:
        """The parametrized tensor."""
        first, *rest = self._as_list()
        value = first(*self._originals())
        for module in rest:
            value = module(value)
        return value


def _inverse(module: Module, value: Arg, default: Arg) -> Result:
    """`module.right_inverse(value)`, or `default` if the module has none."""
    if not hasattr(module, "right_inverse"):
        return default
    try:
        return module.right_inverse(value)
    except NotImplementedError:
        return default


def _keep_kind(original: Tensor, value: Tensor) -> None:
    for what in ("dtype", "device"):
        old, new = getattr(original, what), getattr(value, what)
        if old != new:
            raise ValueRangeError(
                f"When `right_inverse` outputs one tensor, it may not change the {what}.\n"
                f"original.{what}: {old}\nright_inverse(original).{what}: {new}"
            )


def _require(result: object, shape: Sequence[int], dtype: DType, flag: str, old_text: str, new_text: str) -> None:
    """Refuse a parametrization that changes the dtype or shape. The texts are for the error."""
    if not isinstance(result, Tensor):
        raise ValueRangeError(f"A parametrization must return a tensor. Got {type(result).__name__}.")
    for what, old, new in (("dtype", dtype, result.dtype), ("shape", shape, result.shape)):
        if old != new:
            raise ValueRangeError(
                f"Registering a parametrization may not change the {what} of the tensor, unless {flag} is enabled.\n"
                f"{old_text.format(what)}: {old}\n{new_text.format(what)}: {new}"
            )


def _register(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


# --- classes of parametrized modules ----------------------------------------------------------------------------


def _property(name: str) -> property:
    def read(self: Module) -> Tensor:
        compute = self.parametrizations[name]
        computed = _computed.get()
        if computed is None:
            return compute()
        key = (id(self), name)
        if key not in computed.tensors:
            computed.tensors[key] = compute()
        return computed.tensors[key]

    def write(self: Module, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(read, write)


def _no_state(self: Module) -> None:
    raise ModuleError(
        "Serialization of parametrized modules is only supported through state_dict(). See:\n"
        "https://pytorch.org/tutorials/beginner/saving_loading_models.html"
        "#saving-loading-a-general-checkpoint-for-inference-and-or-resuming-training"
    )


def _deepcopy(self: Module, memo: dict[int, object]) -> AttributeValue:
    if id(self) not in memo:
        memo[id(self)] = result = object.__new__(type(self))
        result.__dict__.update(deepcopy(self.__dict__, memo))
    return memo[id(self)]


def _take_class(module: Module) -> None:
    """Set the module's class to one with a property for each parametrized tensor. Classes are never modified."""
    base = type_before_parametrizations(module)
    names = list(module.parametrizations)
    if not names:
        del module.parametrizations
        module.__class__ = base
        return
    body: dict[str, Any] = {name: _property(name) for name in names}
    body |= {"__getstate__": _no_state, "__module__": base.__module__, "_unparametrized": base}
    if not hasattr(base, "__deepcopy__"):
        body["__deepcopy__"] = _deepcopy
    module.__class__ = type(f"Parametrized{base.__name__}", (base,), body)


def type_before_parametrizations(module: Module) -> type[Module]:
    """The module's class before any of its tensors was parametrized."""
    return getattr(type(module), "_unparametrized", type(module))


# --- the public functions ---------------------------------------------------------------------------------------


def register_parametrization(module: M, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> M:
    """Compute a parameter or buffer by the module `parametrization` from now on; returns the outer module.

    The parametrization's `right_inverse`, if it has one, computes the new original from the tensor's current value, so
    that this value stays. Several parametrizations of a tensor are applied in order of registration. `ValueError` for
    one that changes the shape or element type, unless `unsafe`.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        present = module.parametrizations[tensor_name]
        if not unsafe:
            _require_fit(f"module.{tensor_name}", getattr(module, tensor_name), parametrization)
        present.append(parametrization)
        present.unsafe |= unsafe
        return module
    if tensor_name not in buffers_of(module) and tensor_name not in parameters_of(module):
        raise ValueRangeError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
            f"'{tensor_name}'"
        )
    computed = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe=unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        module.parametrizations = ModuleDict()
    module.parametrizations[tensor_name] = computed
    _take_class(module)
    return module


def _require_fit(path: str, now: Tensor, parametrization: Module) -> None:
    """Refuse a parametrization that changes the shape or type of the tensor, or whose inverse does."""
    result = parametrization(now)
    _require(result, now.shape, now.dtype, "the `unsafe` flag", f"{path}.{{}}", f"parametrization({path}).{{}}")
    back = _inverse(parametrization, result, now)
    if not isinstance(back, Tensor):
        raise ValueRangeError(f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}")
    for what in ("dtype", "shape"):
        old, new = getattr(now, what), getattr(back, what)
        if old != new:
            raise ValueRangeError(
                f"The tensor returned by parametrization.right_inverse must have the same {what} as {path}, unless the "
                f"`unsafe` flag is enabled.\n{path}.{what}: {old}\nreturned {what}: {new}"
            )


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether this tensor of the module is parametrized, or any tensor if no name is given."""
    table = getattr(module, "parametrizations", None)
    if not isinstance(table, ModuleDict):
        return False
    return len(table) > 0 if tensor_name is None else tensor_name in table


def remove_parametrizations(module: M, tensor_name: str, leave_parametrized: bool = True) -> M:
    """Make a parametrized tensor an ordinary one again; returns the module.

    With `leave_parametrized` it keeps its current value, else it gets the value of `original`.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueRangeError(f"Module {module} does not have a parametrization on {tensor_name}")
    computed = module.parametrizations[tensor_name]
    if computed.is_tensor:
        left = computed.original
        if leave_parametrized:
            with using(grad=False):
                # Again the same object, for optimizers.
                left.data = getattr(module, tensor_name).detach()
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        left = Parameter(value) if value.requires_grad else value
    else:
        raise ValueRangeError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
            "sequence of tensors."
        )
    del module.parametrizations[tensor_name]
    _take_class(module)
    _register(module, tensor_name, left)
    return module


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Parametrize `to_module` as `from_module` is, with the same parametrizations and originals; returns `to_module`.

    Without `tensor_name`, all parametrized tensors are transferred.
    """
    if not is_parametrized(from_module):
        return to_module
    for name in list(from_module.parametrizations) if tensor_name is None else [tensor_name]:
        computed = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name)))
        for parametrization in computed:
            register_parametrization(to_module, name, parametrization)
        for original in computed._names():
            setattr(to_module.parametrizations[name], original, getattr(computed, original))
    return to_module
