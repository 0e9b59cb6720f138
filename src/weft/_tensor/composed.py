"""Tensors that consist of others instead of one array: sparse, nested and quantized ones.

The owner of their values is an `Encoding`: it holds the tensors of which one consists, and has a rule for a row or
refuses it. Gradients flow through the tensor that holds the elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NoReturn, Self, TypeAlias, cast

from weft._base.capture import active_capture
from weft._base.device import device
from weft._base.dtype import DType
from weft._base.guards import TUPLE
from weft._base.handles import Handle
from weft._base.layout import layout, strided
from weft._base.size import Size
from weft._base.types import AnyCallable, Arg, Args, Kwargs, PyTree, Result, SavedState
from weft._lazy.aval import AnyOwner, Aval
from weft._lazy.call import Exact
from weft._lazy.infer import Call
from weft._lazy.owner import Stored
from weft._lazy.role import Leaf, Role
from weft._lazy.value import Value
from weft._tensor.codegen import op as rows
from weft._tensor.convert import moved
from weft._tensor.copying import restored, set_restorer
from weft._tensor.display import body, place, place_in_graph, type_not_shown, with_suffixes
from weft._tensor.tensor import Results, Tensor, TensorOwner, wrap
from weft.errors import ArgumentError, GradientError, LayoutError, UnsupportedCallError
from weft.ops._kinds import Kind, Many
from weft.ops._table import OpDef

# no cell: filled when the library is imported
ENCODINGS: dict[layout, type[Encoding]] = {}
"""The encodings by their layouts."""

Rule = AnyCallable
"""A row on tensors of an encoding: it takes the row's arguments, with tensors for its inputs.

It returns `NotImplemented` where the result follows from what the row says of itself.
"""


@dataclass(eq=False, repr=False)
class Encoding(TensorOwner):
    """The owner of tensors that consist of others: holds these, and what else is to be known.

    A class derives from it, as a dataclass with more tensors and facts. It has a `layout`, and says what PyTorch's
    errors call that (`kind`).

    size    of the whole tensor, as users get it
    values  the elements, through which gradients flow
    """

    size: Size
    values: Tensor

    layout: ClassVar[layout]
    kind: ClassVar[str]  # what PyTorch's errors call the layout
    advice: ClassVar[str] = "use x.to_dense() first"
    alternative: ClassVar[str] = ""  # to capturing such tensors, besides the advice
    rules: ClassVar[dict[str, Rule]]

    def __init_subclass__(cls) -> None:
        cls.rules = {}
        if "layout" in vars(cls):
            ENCODINGS[cls.layout] = cls
            set_restorer(str(cls.layout), lambda facts, parts: composed(cls.restored(facts, parts)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes as ints."""
        return tuple(self.size)

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self.values.dtype

    @classmethod
    def restored(cls, facts: SavedState, parts: dict[str, Tensor]) -> Encoding:
        """The encoding with these facts and parts."""
        arguments: Kwargs = {**facts, **parts}
        return cls(**arguments)

    def parts(self) -> dict[str, Tensor]:
        """The tensors, by name."""
        return {field.name: x for field in fields(self) if isinstance(x := getattr(self, field.name), Tensor)}

    def facts(self) -> SavedState:
        """What else is to be known, by name."""
        return {field.name: x for field in fields(self) if not isinstance(x := getattr(self, field.name), Tensor)}

    def with_values(self, values: Tensor) -> Tensor:
        """A tensor that differs in its elements only."""
        return composed(replace(self, values=values))

    def whole_array(self) -> Tensor:
        """A dense tensor with the same elements."""
        raise self.refusal("to_dense")

    def gradient(self, values: Tensor) -> Tensor:
        """The gradient of the tensor, from that of its values."""
        return self.with_values(values)

    def each_part(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """The tensor that consists of the results of a function of each part."""
        return composed(replace(self, **{name: function(part) for name, part in self.parts().items()}))

    def tell_capture(self) -> None:
        """Tell a capture that such a tensor is used, which is no part of what it captures."""
        active_capture().needs_value(
            f"a tensor with layout {self.layout!r}",
            f"such tensors are no part of exported or traced programs: {self.alternative}{self.advice}",
        )

    # --- rules --------------------------------------------------------------------------------------------------

    def apply(self, call: Call, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
        """Compute a row on inputs of which one has this encoding, by its rule."""
        self.tell_capture()
        args, kwargs = _arguments(call, inputs)
        rule = self.rules.get(call.op.name)
        result: Result = NotImplemented if rule is None else rule(*args, **kwargs)
        if result is NotImplemented:
            result = self.derived(call.op, args, kwargs)
        return tuple([x._read() for x in (result if isinstance(result, TUPLE) else (result,))])

    def derived(self, op: OpDef, args: Sequence[object], kwargs: Kwargs) -> Results:
        """The result without a rule, from what the row says of itself."""
        del args, kwargs
        raise self.refusal(op.name)

    def refusal(self, name: str, why: str = "") -> UnsupportedCallError:
        """The error for an operator without a rule, with what prevents one."""
        return UnsupportedCallError(
            f"Could not run 'aten::{name}' with arguments from the '{self.kind}{self.values.device.type.upper()}' "
            f"backend: there is no rule for {name}() on tensors with layout {self.layout!r}{why}; {self.advice}"
        )

    # --- as an owner, besides `apply` -----------------------------------------------------------------------------

    def whole_size(self, shape: tuple[int, ...]) -> Size:
        """The size: values have no array."""
        del shape
        return self.size

    def describe(self) -> str:
        """The layout."""
        return f"layout {self.layout!r}"

    def move(self, value: Value, target: device) -> Value:
        """The tensor that consists of the parts on another device."""
        del value
        return self.each_part(lambda part: moved(part, target))._read()

    def save(self, value: Value) -> Stored[Tensor]:
        """The parts and facts. Whether a gradient is required, the parts say."""
        del value
        return Stored(str(self.layout), self.facts(), self.parts())

    def type_like(self, kind: type[Tensor]) -> type[Tensor]:
        """The class of its tensors; refuses parameters and buffers."""
        if issubclass(self.tensor_type, kind):
            return self.tensor_type
        raise UnsupportedCallError(
            f"{kind.__name__}(): a tensor with layout {self.layout!r} cannot be a {kind.__name__.lower()} of a module; "
            f"keep it in an attribute, or {self.advice}"
        )

    def of_gradient(self, gradient: Value) -> Value:
        """The gradient of such a tensor, from that of its values."""
        return self.gradient(wrap(gradient))._read()

    def to_cotangent(self, gradient: Value, text: str) -> NoReturn:
        """Refuses gradients for outputs with this encoding; `x.backward(gradient)` takes them."""
        del gradient
        raise GradientError(
            f"{text} belongs to a tensor with layout {self.layout!r}: use y.backward(gradient), or y.to_dense()"
        )

    def created(self, size: Sequence[int], create: Callable[[Sequence[int], int], Value], row: str) -> Value:
        """A new value, as by `zeros_like`, which is made by a factory row: by default one with new values."""
        if tuple(size) != tuple(self.size):
            raise self.refusal(f"new_{row}")
        return self.with_values(wrap(create(self.values.shape, 0)))._read()

    def to_owner(self, value: Value, owner: AnyOwner | None) -> Value:
        """A value that is written to a tensor with another encoding; `RuntimeError` for a layout that differs."""
        own = value.aval.owner
        if owner is None and own is self:
            return self.whole_array()._read()
        target, source = _layout_of(owner), _layout_of(own)
        if target != source:
            raise UnsupportedCallError(
                f"cannot write a tensor with layout {source} to one with layout {target}; assign the result instead"
            )
        return value


def _layout_of(owner: AnyOwner | None) -> str:
    return "torch.strided" if owner is None else owner.describe().removeprefix("layout ")


def rule(encodings: type[Encoding] | Sequence[type[Encoding]], *rows: str) -> Callable[[Rule], Rule]:
    """Make the decorated function the rule of these rows for tensors of some encodings."""

    def add(function: Rule) -> Rule:
        for encoding in encodings if isinstance(encodings, Sequence) else (encodings,):
            encoding.rules.update(dict.fromkeys(rows, function))
        return function

    return add


def on_whole(name: str, *args: object, **kwargs: object) -> Results:
    """The result of a row for dense tensors with the elements of the encoded ones."""
    return getattr(rows, name)(*map(_whole, args), **{key: _whole(x) for key, x in kwargs.items()})


def _whole(x: object) -> PyTree:
    if isinstance(x, list):
        return [_whole(one) for one in cast("list[Any]", x)]
    encoding = encoding_of(x) if isinstance(x, Tensor) else None
    return x if encoding is None else encoding.whole_array()


def _arguments(call: Call, inputs: Sequence[Value]) -> tuple[list[Arg], Kwargs]:
    """The arguments of a call's row, with tensors for its inputs."""
    rest = map(wrap, inputs)
    args: list[Arg] = []
    kwargs: Kwargs = {}
    for param, entry in zip(call.op.params, call.static, strict=True):
        if isinstance(entry, Many):
            several = param.kind in (Kind.ARRAYS, Kind.KEY)
            value = [next(rest) for _ in range(entry.count)] if several else next(rest)
        else:
            value = entry.value if isinstance(entry, Exact) else entry
        if param.keyword_only:
            kwargs[param.name] = value
        else:
            args.append(value)
    return args, kwargs


AnyEncoding: TypeAlias = Any
"""An encoding of one layout: whoever asks for it knows the layout, and that its class has the parts of that."""


def encoding_of(x: Tensor) -> AnyEncoding:
    """The encoding of a tensor; None for one that is an array."""
    return x._read().aval.owner


class Composed(Value):
    """The value of a tensor with an encoding. It is no part of a graph: gradients flow through the encoding's parts."""

    __slots__ = ()

    def __init__(self, encoding: Encoding) -> None:
        values = encoding.values._read().aval
        self.origin = None
        self.inputs = ()
        self.aval = Aval(encoding.shape, encoding.dtype, False, values.device, values.inference, None, encoding)
        self.extras = ()
        self.num = -1
        encoding.tell_capture()

    @property
    def content(self) -> NoReturn:
        """Raises: there is no single array."""
        encoding = self._encoding
        raise LayoutError(f"a tensor with layout {encoding.layout!r} has no single array; {encoding.advice}")

    @property
    def _encoding(self) -> Encoding:
        encoding = self.aval.owner
        assert isinstance(encoding, Encoding), "it is made with one"
        return encoding

    @property
    def _values(self) -> Value:
        return self._encoding.values._read()

    @property
    def role(self) -> Role | None:
        """How the values take part in differentiation."""
        return self._values.role

    @role.setter
    def role(self, role: Role | None) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]  the values' own
        self._values.role = role
        self._encoding.values._role = cast("Leaf | None", role)  # gradients end at a sparse leaf's values

    @property
    def time(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]  the values' own
        """The number of the recording of the values."""
        return self._values.time


def composed(encoding: Encoding) -> Tensor:
    """A new tensor with an encoding."""
    return wrap(Composed(encoding))


class ComposedTensor(Tensor):
    """A tensor that consists of others. Operators on it follow the rules of its encoding."""

    def __repr__(self) -> str:
        lead = "tensor("
        suffixes = [*place(self), f"size={tuple(self.shape)}", *type_not_shown(self), f"layout={self.layout!r}"]
        text = lead + (body(self._encoding.whole_array().detach(), len(lead)) if self.numel() else "[]")
        return with_suffixes(text, [*suffixes, *place_in_graph(self)], len(lead))

    @property
    def _encoding(self) -> Encoding:
        encoding = self._read().aval.owner
        assert isinstance(encoding, Encoding), "its values are composed"
        return encoding

    @property
    def layout(self) -> layout:
        """How its elements are stored."""
        return self._encoding.layout

    def to_dense(self, dtype: DType | None = None, *, masked_grad: bool | None = None) -> Tensor:
        """The same elements as a dense tensor, through which gradients flow; itself, if its layout is `strided`."""
        del masked_grad  # what is not stored has no place for a gradient
        dense = self if self.layout is strided else self._encoding.whole_array()
        return dense if dtype is None else dense.to(dtype)

    # --- gradients ----------------------------------------------------------------------------------------------

    def _set_requires_grad(self, requires_grad: object, refusal: str) -> Self:
        self._encoding.values._require_grad(requires_grad, refusal)
        return self

    @property
    def grad(self) -> Tensor | None:
        """The gradient of the elements that are stored, with the same encoding; or None."""
        gradient = self._encoding.values.grad
        return None if gradient is None else self._encoding.gradient(gradient)

    @grad.setter
    def grad(self, grad: Tensor | None) -> None:
        self._encoding.values.grad = None if grad is None else self._values_like(grad, "the assigned gradient")

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    def _values_like(self, x: Arg, what: str) -> Tensor:
        """The values of a tensor that has its elements at the same places."""
        encoding, own = encoding_of(x), self._encoding
        if encoding is None or encoding.layout is not own.layout or encoding.values.shape != own.values.shape:
            raise GradientError(
                f"{what} must have layout {own.layout!r} and values of size {list(own.values.shape)}, as the tensor "
                "itself has"
            )
        return encoding.values

    @property
    def grad_fn(self) -> Arg:
        """The recorded application that has made the values, or None for a leaf."""
        return self._encoding.values.grad_fn

    def retain_grad(self) -> None:
        """Accumulate the gradient in `.grad` even if the tensor is not a leaf."""
        self._encoding.values.retain_grad()

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad` was called."""
        return self._encoding.values.retains_grad

    def register_hook(self, hook: Callable[[Tensor], object]) -> Handle:
        """Call `hook(grad)` when the gradient is complete; a result other than None replaces the gradient."""
        encoding = self._encoding

        def on_values(grad: Tensor) -> Tensor | None:
            result = hook(encoding.gradient(grad))
            return None if result is None else self._values_like(result, "the hook's result")

        return encoding.values.register_hook(on_values)

    def register_post_accumulate_grad_hook(self, hook: object) -> NoReturn:
        """Raises: such tensors are no parameters."""
        raise self._encoding.refusal("register_post_accumulate_grad_hook")

    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  the stub's parameters
        self, gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = False
    ) -> None:
        """Add gradients to `.grad` of the leaves; `gradient` has the same encoding."""
        if gradient is None:
            raise GradientError("grad can be implicitly created only for scalar outputs; give a gradient")
        values = self._values_like(gradient, "the gradient")
        self._encoding.values.backward(values, retain_graph=retain_graph, create_graph=create_graph)

    def detach(self) -> Tensor:
        """A tensor of the same elements through which no gradient flows."""
        return self._encoding.each_part(Tensor.detach)

    def detach_(self) -> Tensor:
        """Make it a leaf, without history."""
        self._encoding.values.detach_()
        return self

    # --- elements -----------------------------------------------------------------------------------------------

    def _read_concrete(self, *, decides: bool = False) -> NoReturn:
        del decides
        raise ArgumentError(
            f"can't convert {self._encoding.kind} layout tensor to numpy. Use Tensor.to_dense() first."
            if self._encoding.kind.startswith("Sparse")
            else f"a tensor with layout {self.layout!r} has no single array; {self._encoding.advice}"
        )

    def __deepcopy__(self, memo: dict[int, Arg]) -> Tensor:
        if id(self) not in memo:
            if not self.is_leaf:
                raise GradientError(
                    "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
                    "moment. Deep-copy `tensor.detach()` instead."
                )
            memo[id(self)] = self._encoding.each_part(lambda part: part.__deepcopy__(memo))
        return memo[id(self)]

    def __copy__(self) -> Tensor:
        return self.detach().requires_grad_(self.requires_grad)

    def __reduce_ex__(self, protocol: int) -> tuple[AnyCallable, Args]:
        encoding = self._encoding
        return rebuilt, (encoding.layout, encoding.facts(), encoding.parts())


Encoding.tensor_type = ComposedTensor


def rebuilt(layout: layout, facts: dict[str, object], parts: dict[str, Tensor]) -> Tensor:
    """The tensor that a pickle describes; whether it requires a gradient, its values say."""
    return restored(Stored(str(layout), facts, parts))
