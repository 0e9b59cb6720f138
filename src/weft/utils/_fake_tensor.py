"""Fake tensors: those of the meta device, which say that they are on another one, and the mode that makes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar
from weakref import ref

from weft._base.device import CPU, META, DeviceLike, canonical, default_device, device
from weft._base.layout import strided
from weft._base.state import default_dtype
from weft._base.types import Arg, Args, Kwargs, Result
from weft._interop.aten.functions import DerivativeOverload, innermost_mode, modes
from weft._tensor.copying import without_elements
from weft._tensor.origins import origin_of
from weft._tensor.overriding import no_dispatch, setting
from weft._tensor.sharing import of_class
from weft._tensor.tensor import Tensor
from weft.errors import DeviceError, NoDataError, PreconditionError, WeftError
from weft.nn import Parameter
from weft.ops._aten import AtenOverload, aten
from weft.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from weft.utils._pytree import tree_leaves, tree_map

T = TypeVar("T")


class DataDependentOutputException(WeftError, RuntimeError):
    """A number was asked of a fake tensor, which has no elements."""

    def __init__(self, func: AtenOverload) -> None:
        super().__init__(f"{func}: its result depends on elements, which fake tensors do not have")
        self.func = func


class DynamicOutputShapeException(WeftError, RuntimeError):
    """The sizes of a result depend on the elements of a fake tensor."""

    def __init__(self, func: AtenOverload) -> None:
        super().__init__(f"{func}: the sizes of its result depend on elements, which fake tensors do not have")
        self.func = func


class UnsupportedFakeTensorException(WeftError, RuntimeError):
    """There can be no fake of a tensor."""


_GRAD: Any = Tensor.grad


class FakeTensor(Tensor):
    """A tensor with sizes, a type, a device and a place in the graph, and no elements.

    fake_mode    the mode that has made it
    fake_device  the device that it says it is on
    """

    fake_mode: FakeTensorMode
    _wrapper_device: device

    @staticmethod
    def __new__(cls: type[FakeTensor], fake_mode: FakeTensorMode, elem: Tensor, device: DeviceLike, **_: Arg) -> Any:
        """A fake with the sizes and the graph of `elem`, a tensor on the meta device."""
        result = of_class(cls, elem)
        result._wrapper_device = canonical(device)
        result.fake_mode = fake_mode
        return result

    def __init__(self, *_: Arg, **__: Arg) -> None:
        """All is set by `__new__`."""

    @property
    def fake_device(self) -> device:
        """The device that it says it is on."""
        return self._wrapper_device

    @property
    def grad(self) -> Tensor | None:
        """The gradient, as a fake tensor on the same device."""
        grad = _GRAD.__get__(self)
        if grad is not None and not isinstance(grad, FakeTensor):
            grad = FakeTensor(self.fake_mode, grad, self.fake_device)
            _GRAD.__set__(self, grad)
        return grad

    @grad.setter
    def grad(self, grad: Tensor | None) -> None:
        _GRAD.__set__(self, grad)

    @grad.deleter
    def grad(self) -> None:
        _GRAD.__delete__(self)

    @property
    def constant(self) -> None:
        """None: no fake keeps elements."""
        return

    @classmethod
    def from_tensor(cls, t: Tensor, fake_mode: FakeTensorMode) -> FakeTensor:
        """`fake_mode.from_tensor(t)`."""
        return fake_mode.from_tensor(t)

    @classmethod
    def __torch_dispatch__(
        cls, func: AtenOverload, types: Iterable[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> Result:
        """Compute the types of the results."""
        fake = next(x for x in tree_leaves((args, kwargs)) if isinstance(x, FakeTensor))
        return fake.fake_mode.dispatch(func, types, args, kwargs)

    def __repr__(self, *, tensor_contents: object = None) -> str:
        facts = [] if self.fake_device is CPU else [f"device='{self.fake_device}'"]
        facts.append(f"size={tuple(self.shape)}")
        if self.dtype is not default_dtype():
            facts.append(f"dtype={self.dtype}")
        if self.grad_fn is not None:
            facts.append(f"grad_fn=<{self.grad_fn.name()}>")
        elif self.requires_grad:
            facts.append("requires_grad=True")
        text = f"FakeTensor(..., {', '.join(facts)})"
        return f"Parameter({text})" if getattr(self, "_is_param", False) else text


class FakeTensorConverter:
    """Makes fakes of tensors, for a mode."""

    def from_real_tensor(self, fake_mode: FakeTensorMode, t: Tensor, **_: Arg) -> FakeTensor:
        """`fake_mode.from_tensor(t)`."""
        return fake_mode.from_tensor(t)


class FakeTensorMode(TorchDispatchMode):
    """In its block, new tensors are fake, and operators on fake tensors give fake ones.

    Real tensors among the arguments are refused unless `allow_non_fake_inputs`; `from_tensor` makes fakes of them.
    Sizes are numbers: a `shape_env` is kept, and not asked.
    """

    makes_fakes = True

    def __init__(
        self,
        *,
        allow_fallback_kernels: bool = True,
        allow_non_fake_inputs: bool = False,
        shape_env: Any = None,
        static_shapes: bool | None = None,
        export: bool = False,
    ) -> None:
        self.allow_fallback_kernels = allow_fallback_kernels
        self.allow_non_fake_inputs = allow_non_fake_inputs
        self.shape_env = shape_env
        self.static_shapes = shape_env is None if static_shapes is None else static_shapes
        self.export = export
        self._memo: dict[int, tuple[ref[Tensor], FakeTensor]] = {}
        self._storages: dict[int, tuple[ref[Tensor], Tensor]] = {}  # the fakes of tensors that share share one, too

    @classmethod
    def is_infra_mode(cls) -> bool:
        """True, as in PyTorch."""
        return True

    def from_tensor(self, tensor: Tensor, **_: Arg) -> FakeTensor:
        """The fake of a tensor: the same one whenever it is asked for, and a parameter if the tensor is one."""
        if isinstance(tensor, FakeTensor):
            return tensor
        if tensor.layout is not strided:
            raise UnsupportedFakeTensorException(f"there is no fake of a tensor of layout {tensor.layout}")
        entry = self._memo.get(id(tensor))
        if entry is not None and entry[0]() is tensor:
            return entry[1]
        with _without_fakes():
            origin = origin_of(tensor)
            elem = without_elements(tensor, self._storages)
            fake = FakeTensor(self, elem, tensor.device if origin is None else origin.home)
            fake.requires_grad_(tensor.requires_grad)
        if isinstance(tensor, Parameter):
            fake._is_param = True
        self._memo[id(tensor)] = (ref(tensor), fake)
        return fake

    def __torch_dispatch__(
        self, func: AtenOverload, types: Iterable[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> Result:
        """Compute the types of the results."""
        return self.dispatch(func, types, args, kwargs)

    def dispatch(
        self, func: AtenOverload, types: Iterable[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> Result:
        """The results of an operator as fakes."""
        if isinstance(func, DerivativeOverload):  # between fakes, a backward pass has tensors on the meta device
            return func(*args)
        if func in _OF_ELEMENTS:
            raise DataDependentOutputException(func)
        args, named = tree_map(partial(self._fake_argument, func), (args, dict(kwargs or {})))
        fakes = [x for x in tree_leaves((args, named)) if isinstance(x, FakeTensor)]
        target = _device_of(func, fakes, named)
        if named.get("device") is not None or (not fakes and _takes_device(func)):
            named["device"] = META
        try:
            with _without_fakes():
                result = no_dispatch(func, types, args, named)
        except NoDataError:
            raise DynamicOutputShapeException(func) from None
        return tree_map(lambda x: self._wrapped(x, target), result)

    def _fake_argument(self, func: AtenOverload, x: Arg) -> Arg:
        if not isinstance(x, Tensor) or isinstance(x, FakeTensor):
            return x
        is_number = x.ndim == 0 and x.device is CPU
        if not (self.allow_non_fake_inputs or is_number or func is aten.lift_fresh.default):
            raise PreconditionError(
                "Please convert all Tensors to FakeTensors first or instantiate FakeTensorMode with "
                f"'allow_non_fake_inputs'. Found in {func}(...)"
            )
        return self.from_tensor(x)

    def _wrapped(self, x: Arg, target: device) -> Arg:
        if not isinstance(x, Tensor) or isinstance(x, FakeTensor):
            return x
        return FakeTensor(self, x, target)


_OF_ELEMENTS = frozenset({aten._local_scalar_dense.default, aten.equal.default, aten.allclose.default})


def _takes_device(func: AtenOverload) -> bool:
    return any(x.name == "device" for x in func.schema.arguments)


def _device_of(func: AtenOverload, fakes: list[FakeTensor], kwargs: Kwargs) -> device:
    """The device of the results: the one that is given, that of the arguments, or the default one."""
    if kwargs.get("device") is not None:
        return canonical(kwargs["device"])
    devices = {x.fake_device for x in fakes if x.ndim} or {x.fake_device for x in fakes}
    if len(devices) > 1:
        first, second = sorted(map(str, devices))[:2]
        raise DeviceError(
            f"Unhandled FakeTensor Device Propagation for {func}, found two different devices {first}, {second}"
        )
    return devices.pop() if devices else default_device() or CPU


# --- which mode ---------------------------------------------------------------------------------------------------


@contextmanager
def _without_fakes() -> Iterator[FakeTensorMode | None]:
    stack = modes()
    with setting(dispatchers=tuple([mode for mode in stack if not isinstance(mode, FakeTensorMode)])):
        yield next((mode for mode in stack if isinstance(mode, FakeTensorMode)), None)


unset_fake_temporarily = _without_fakes
"""A block in which no `FakeTensorMode` is on; it gives the one that was."""


def is_fake(x: object) -> bool:
    """Whether this is a fake tensor, or one of a class that holds some."""
    if isinstance(x, FakeTensor):
        return True
    if is_traceable_wrapper_subclass(x):
        inner: Any = x
        return all(is_fake(getattr(inner, name)) for name in inner.__tensor_flatten__()[0])
    return False


def active_fake_mode() -> FakeTensorMode | None:
    """The innermost `FakeTensorMode` that is on."""
    return innermost_mode(FakeTensorMode)


def detect_fake_mode(inputs: object = None) -> FakeTensorMode | None:
    """The `FakeTensorMode` that is on, or that has made a tensor among `inputs`."""
    own = (x.fake_mode for x in tree_leaves(inputs) if isinstance(x, FakeTensor))
    return active_fake_mode() or next(own, None)


def mb_unwrap_functional_tensor(tensor: T) -> T:
    """The tensor itself, as none stands for another one here; libraries call it by PyTorch's name."""
    return tensor
