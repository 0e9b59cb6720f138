"""Tensors that have a mask: operators compute with the elements where it is true, and pass the mask on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from weft._base.dtype import DTYPES, DType, bool_
from weft._base.site import warn_user
from weft._base.size import Size
from weft._base.types import AnyCallable, Arg, Args, AttributeValue, Kwargs, PyTree, Result
from weft._tensor.assemble import PUBLIC
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, NotDefinedError, ValueRangeError

_UNARY = (
    "abs", "absolute", "acos", "arccos", "acosh", "arccosh", "angle", "asin", "arcsin", "asinh", "arcsinh",
    "atan", "arctan", "atanh", "arctanh", "bitwise_not", "ceil", "clamp", "clip", "conj_physical", "cos",
    "cosh", "deg2rad", "digamma", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "fix", "floor", "frac",
    "lgamma", "log", "log10", "log1p", "log2", "logit", "i0", "isnan", "nan_to_num", "neg", "negative",
    "positive", "pow", "rad2deg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sgn", "signbit", "sin",
    "sinc", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
)  # fmt: skip
_BINARY = (
    "add", "atan2", "arctan2", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift",
    "bitwise_right_shift", "div", "divide", "floor_divide", "fmod", "logaddexp", "logaddexp2", "mul",
    "multiply", "nextafter", "remainder", "sub", "subtract", "true_divide", "eq", "ne", "le", "ge", "greater",
    "greater_equal", "gt", "less_equal", "lt", "less", "maximum", "minimum", "fmax", "fmin", "not_equal",
)  # fmt: skip
_SYMBOLS = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift", "radd", "rsub",
    "rmul", "rtruediv", "rfloordiv", "rmod", "eq", "ne", "lt", "le", "gt", "ge",
)  # fmt: skip
_MOVING = (
    "select", "transpose", "t", "expand", "view", "reshape", "unsqueeze", "unfold", "contiguous", "clone",
    "detach", "__getitem__",
)  # fmt: skip
_REDUCING = (
    "sum", "mean", "amin", "amax", "argmin", "argmax", "prod", "all", "norm", "var", "std",
)  # fmt: skip
_OF_DATA = {
    "shape": "Sizes of the dims.",
    "ndim": "The number of dims.",
    "dtype": "Type of the elements.",
    "device": "The device of the elements.",
    "layout": "The layout: `strided`.",
    "requires_grad": "Whether gradients flow to this tensor.",
    "is_leaf": "Whether this is not a result of an operator through which gradients flow.",
    "grad_fn": "The recorded application that has made it, or None for a leaf.",
}
"""Properties that are those of the elements, with their docstrings."""
_NOT_IN_PLACE = {
    "angle", "positive", "signbit", "isnan", "logaddexp", "logaddexp2", "fmin", "minimum", "maximum", "fmax",
}  # fmt: skip


class MaskedTensor:
    """A tensor `data` of which the elements are valid where the boolean tensor `mask` is true, and masked elsewhere.

    Element-wise operators keep the mask, and two masked tensors must have the same. Reductions leave masked elements
    out, and mask a result where no element was valid. It holds copies of both tensors, and is a leaf: gradients are
    masked tensors. `TypeError` or `ValueError` for tensors that do not belong together.
    """

    def __init__(self, data: Tensor, mask: Tensor, requires_grad: bool = False) -> None:
        warn_user(
            "The PyTorch API of MaskedTensors is in prototype stage and will change in the near future. See the page "
            "on memory for what works here."
        )
        for name, x in (("data", data), ("mask", mask)):
            if not isinstance(x, Tensor):
                raise ArgumentError(f"{name} must be a Tensor, got {type(x).__name__}")
        if data.requires_grad:
            warn_user(
                "It is not recommended to create a MaskedTensor with a tensor that requires_grad. To avoid this, you "
                "can use data.detach().clone(); as_masked_tensor(data, mask) keeps its gradient"
            )
        self._set(data.detach().clone().requires_grad_(requires_grad), mask.clone())

    def _set(self, data: Tensor, mask: Tensor) -> None:
        if mask.dtype is not bool_:
            raise ArgumentError(f"mask must have dtype bool, got {mask.dtype}")
        if data.dtype not in _TYPES:
            raise ArgumentError(f"{data.dtype} is not supported in MaskedTensor.")
        if data.ndim != mask.ndim:
            raise ValueRangeError(f"data.dim() must equal mask.dim(), got {data.ndim} and {mask.ndim}")
        if data.shape != mask.shape:
            raise ValueRangeError(f"data.size() must equal mask.size(), got {list(data.shape)} and {list(mask.shape)}")
        self._data, self._mask = data, mask

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> AttributeValue:
            """The operators, and what elements tell, which are defined below."""

    # --- what it is -----------------------------------------------------------------------------------------------

    def get_data(self) -> Tensor:
        """The elements, valid or not, as a view; gradients flow through it."""
        return self._data.view_as(self._data)

    def get_mask(self) -> Tensor:
        """Where elements are valid: booleans."""
        return self._mask

    def to_tensor(self, value: Arg) -> Tensor:
        """A tensor with the number `value` in place of masked elements."""
        return self.get_data().masked_fill(~self._mask, value)

    def size(self, dim: int | None = None) -> Size | int:
        """Sizes of the dims, or of one of them."""
        return self._data.size(dim)

    def dim(self) -> int:
        """The number of dims."""
        return self._data.ndim

    def numel(self) -> int:
        """The number of elements, valid or not."""
        return self._data.numel()

    def __len__(self) -> int:
        return len(self._data)

    is_sparse = False

    def to(self, *args: Arg, **options: Arg) -> MaskedTensor:
        """The elements with another type, on another device, or both."""
        data = self.get_data().to(*args, **options)
        return _wrapped(data, self._mask.to(data.device))

    def item(self) -> float | int | bool | complex | None:
        """The only element, as a Python number; `ValueError` if it is masked."""
        if not bool(self._mask.all()):
            raise ValueRangeError("item(): the element is masked; use get_data() or to_tensor(value)")
        return self._data.item()

    # --- gradients ------------------------------------------------------------------------------------------------

    def requires_grad_(self, requires_grad: bool = True) -> MaskedTensor:
        """Set whether a gradient is accumulated in `.grad`."""
        self._data.requires_grad_(requires_grad)
        return self

    @property
    def grad(self) -> MaskedTensor | None:
        """The sum of the gradients of all backward passes, with this tensor's mask, or None."""
        return None if self._data.grad is None else _wrapped(self._data.grad, self._mask)

    def backward(self, gradient: Arg = None, **options: Arg) -> None:
        """Run a backward pass from this tensor."""
        self._data.backward(gradient.get_data() if is_masked_tensor(gradient) else gradient, **options)

    # --- functions ------------------------------------------------------------------------------------------------

    def softmax(self, dim: int, dtype: DType | None = None) -> MaskedTensor:
        """The softmax along `dim` of the valid elements."""
        return _wrapped(PUBLIC["masked"]["softmax"](self.get_data(), dim, dtype=dtype, mask=self._mask), self._mask)

    def log_softmax(self, dim: int, dtype: DType | None = None) -> MaskedTensor:
        """The logarithm of the softmax along `dim` of the valid elements."""
        return _wrapped(PUBLIC["masked"]["log_softmax"](self.get_data(), dim, dtype=dtype, mask=self._mask), self._mask)

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[MaskedTensor, ...]:
        """Views of consecutive parts."""
        return tuple(map(_wrapped, self.get_data().split(split_size, dim), self._mask.split(split_size, dim)))

    @classmethod
    def __torch_function__(
        cls, func: AnyCallable, types: Sequence[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> Result:
        """A public function of which an argument is a masked tensor: the method of that name."""
        name, options = getattr(func, "__name__", str(func)).rpartition(".")[2], dict(kwargs or {})
        if name in ("cat", "stack", "concat", "concatenate"):
            return _joined(func, *args, **options)
        if name == "where":
            return _chosen(*args, **options)
        if name in _BINARY:
            return _paired(name, *args, **options)
        if args and is_masked_tensor(args[0]) and callable(method := getattr(args[0], name, None)):
            return method(*args[1:], **options)
        raise ArgumentError(
            f"no implementation found for {name!r} on types that implement __torch_function__: [MaskedTensor]. Use "
            "get_data(), or to_tensor(value)"
        )

    def __repr__(self) -> str:
        if self.ndim == 0:
            valid = bool(self._mask.item())
            return f"MaskedTensor({_spelled(self._data.item()) if valid else '--'}, {valid})"
        text = _text(self._data.tolist(), self._mask.tolist(), self.ndim)
        return "MaskedTensor(\n" + "\n".join([f"  {line}" for line in text.split("\n")]) + "\n)"

    __hash__ = object.__hash__


_TYPES = tuple(
    dtype
    for dtype in DTYPES
    if dtype.name in ("bool", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
)


def masked_tensor(data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
    """A masked tensor with copies of both, which is a leaf."""
    return MaskedTensor(data, mask, requires_grad)


def as_masked_tensor(data: Tensor, mask: Tensor) -> MaskedTensor:
    """A masked tensor of a copy of `data` through which gradients flow."""
    return _wrapped(data.clone(), mask)


def is_masked_tensor(obj: object, /) -> bool:
    """Whether `obj` is a `MaskedTensor`."""
    return isinstance(obj, MaskedTensor)


def _wrapped(data: Tensor, mask: Tensor) -> MaskedTensor:
    result: MaskedTensor = object.__new__(MaskedTensor)
    result._set(data, mask)
    return result


# --- texts ------------------------------------------------------------------------------------------------------


def _spelled(x: Arg) -> str:
    return f"{x:8.4f}" if isinstance(x, float) else str(x)


def _text(data: PyTree, mask: PyTree, ndim: int) -> str:
    if ndim > 1:
        rows = [_text(row, valid, ndim - 1) for row, valid in zip(data, mask, strict=True)]
        return "[\n" + ",\n".join(["\n".join([f"  {line}" for line in row.split("\n")]) for row in rows]) + "\n]"
    texts = [_spelled(x) for x in data]
    width = max([len(text) if valid else 8 for text, valid in zip(texts, mask, strict=True)], default=0)
    return "[" + ", ".join([t if valid else "--".rjust(width) for t, valid in zip(texts, mask, strict=True)]) + "]"


# --- operators --------------------------------------------------------------------------------------------------


def _data_of(x: Arg) -> Arg:
    return x.get_data() if is_masked_tensor(x) else x


def _refuse_others(name: str, args: Args, options: Kwargs) -> None:
    if options:
        raise ValueRangeError(f"{name}: masked tensors take no keyword arguments here, got {', '.join(options)}")
    if any(isinstance(x, Tensor) or is_masked_tensor(x) for x in args):
        raise ArgumentError(f"MaskedTensor {name} does not support additional Tensor arguments")


def _unary(name: str) -> Callable[..., MaskedTensor]:
    def method(self: MaskedTensor, *args: Arg, **options: Arg) -> MaskedTensor:
        _refuse_others(name, args, options)
        return _wrapped(getattr(self.get_data(), name)(*args), self.get_mask())

    return method


def _common_mask(name: str, a: Arg, b: Arg) -> Tensor:
    """The mask of an operator's arguments, of which one at least has one. Waits for masks that are not one tensor."""
    masks = [x.get_mask() for x in (a, b) if is_masked_tensor(x)]
    if len(masks) > 1 and masks[0] is not masks[1] and not masks[0].equal(masks[1]):
        raise ValueRangeError(f"{name}: Input masks must match. Combine them first: masked_tensor(x.get_data(), a & b)")
    return masks[0]


def _paired(name: str, a: Arg, b: Arg, *args: Arg, **options: Arg) -> MaskedTensor:
    """An operator of two tensors."""
    _refuse_others(name, args, options)
    mask = _common_mask(name, a, b)
    x, y = _data_of(a), _data_of(b)
    result = getattr(x, name)(y, *args) if isinstance(x, Tensor) else PUBLIC[""][name](x, y, *args)
    return _wrapped(result, mask.expand_as(result))


def _binary(name: str) -> Callable[..., MaskedTensor]:
    def method(self: MaskedTensor, other: Arg, *args: Arg, **options: Arg) -> MaskedTensor:
        return _paired(name, self, other, *args, **options)

    return method


def _in_place(name: str) -> Callable[..., MaskedTensor]:
    """The form that replaces the elements of the masked tensor, which may require no gradient."""

    def method(self: MaskedTensor, *args: Arg, **options: Arg) -> MaskedTensor:
        result = getattr(self, name)(*args, **options)
        self._data.copy_(result.get_data())
        return self

    return method


def _symbol(name: str) -> AnyCallable:
    def method(self: MaskedTensor, other: Arg) -> Result:
        mask = _common_mask(name, self, other)
        result = getattr(self.get_data(), name)(_data_of(other))
        return result if result is NotImplemented else _wrapped(result, mask.expand_as(result))

    return method


def _moving(name: str) -> Callable[..., MaskedTensor]:
    """An operator that moves elements, of data and mask alike."""

    def method(self: MaskedTensor, *args: Arg, **options: Arg) -> MaskedTensor:
        return _wrapped(*[getattr(x, name)(*args, **options) for x in (self.get_data(), self.get_mask())])

    return method


def _joined(function: Callable[..., Tensor], tensors: Sequence[Arg], *args: Arg, **options: Arg) -> MaskedTensor:
    """`cat` or `stack`, of tensors that have masks or are valid as a whole."""
    data = [_data_of(x) for x in tensors]
    masks = [x.get_mask() if is_masked_tensor(x) else x.new_ones(x.shape, dtype=bool_) for x in tensors]
    return _wrapped(function(data, *args, **options), function(masks, *args, **options))


def _chosen(condition: Tensor, input: Arg, other: Arg) -> MaskedTensor:
    """Elements and masks of `input` where a condition is true, else of `other`."""
    choose = PUBLIC[""]["where"]
    masks = [x.get_mask() if is_masked_tensor(x) else True for x in (input, other)]
    return _wrapped(choose(condition, _data_of(input), _data_of(other)), choose(condition, *masks))


def _reducing(name: str) -> Callable[..., MaskedTensor]:
    def method(
        self: MaskedTensor, dim: int | Sequence[int] | None = None, keepdim: bool = False, dtype: DType | None = None
    ) -> MaskedTensor:
        data, mask = self.get_data(), self.get_mask()
        if name == "all":
            filled = data.masked_fill(~mask, 1)
            result = filled.all() if dim is None else filled.all(dim, keepdim)
        else:
            options: dict[str, Any] = {"dim": dim, "keepdim": keepdim, "dtype": dtype}
            result = PUBLIC["masked"][name](data, mask=mask, **options)
        return _wrapped(result, mask.any() if dim is None else mask.any(dim, keepdim))

    return method


def _choosing(name: str) -> Callable[..., MaskedTensor]:
    return lambda self, condition, other: _chosen(condition, self, other)


def _refused(name: str) -> AnyCallable:
    def method(self: MaskedTensor, *args: Arg) -> Result:
        raise NotDefinedError(f"{name} is not defined for masked tensors; use get_data(), or to_tensor(value)")

    return method


for _name, _doc in _OF_DATA.items():
    setattr(MaskedTensor, _name, property(attrgetter(f"_data.{_name}"), doc=_doc))
for _names, _make in (
    (_UNARY, _unary),
    (_BINARY, _binary),
    (_MOVING, _moving),
    (_REDUCING, _reducing),
    (["where"], _choosing),
    ([f"__{word}__" for word in _SYMBOLS], _symbol),
    (["__neg__", "__invert__", "__abs__", "__pow__"], _unary),
    (["__matmul__", "__rmatmul__", "__bool__", "__float__", "__int__", "__iter__"], _refused),
):
    for _name in _names:
        setattr(MaskedTensor, _name, _make(_name))
for _name in (*_UNARY, *_BINARY):
    if _name not in _NOT_IN_PLACE:
        setattr(MaskedTensor, f"{_name}_", _in_place(_name))
