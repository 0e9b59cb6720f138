"""Tensors that consist of others instead of one array: sparse, nested and quantized ones.

Their values have a type that no signature has, with a `Form` in the place of a sharding. So the common call never
looks at them: it finds no signature, and the general path asks the form, which has a rule for a row or refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NoReturn, cast

from weft._base.dtype import DType
from weft._base.layout import layout
from weft._base.size import Size
from weft._lazy.aval import Aval, Sharding
from weft._lazy.call import Exact
from weft._lazy.infer import Call
from weft._lazy.tape import Tape
from weft._lazy.value import Value
from weft._tensor.capture_hooks import depends_on
from weft._tensor.tensor import Tensor, wrap
from weft.errors import ArgumentError, GradientError, LayoutError, UnsupportedCallError
from weft.ops._kinds import Kind, Many
from weft.ops._table import OpDef

FORMS: dict[layout, type[Form]] = {}
"""The forms by their layouts."""

Rule = Callable[..., Any]
"""A row on tensors of a form: it takes the row's arguments, with tensors for its inputs.

It returns `NotImplemented` where the result follows from what the row says of itself.
"""


@dataclass(eq=False, repr=False)
class Form:
    """The tensors of which another one consists, and what else is to be known of it.

    size    of the whole tensor, as users get it
    values  the elements, through which gradients flow
    """

    size: Size
    values: Tensor

    layout: ClassVar[layout]
    kind: ClassVar[str]  # what PyTorch's errors call the layout
    advice: ClassVar[str] = "use x.to_dense() first"
    alternative: ClassVar[str] = ""  # to capturing such tensors, besides the advice
    tensor_type: ClassVar[type[Tensor]]
    rules: ClassVar[dict[str, Rule]]
    mesh: ClassVar[None] = None

    def __init_subclass__(cls) -> None:
        cls.rules = {}
        if "layout" in vars(cls):
            FORMS[cls.layout] = cls

    def __repr__(self) -> str:
        return f"layout {self.layout!r}"

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes as ints."""
        return tuple(self.size)

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self.values.dtype

    @classmethod
    def restored(cls, facts: dict[str, Any], parts: dict[str, Tensor]) -> Form:
        """The form with these facts and parts."""
        return cls(**{**facts, **parts})

    def parts(self) -> dict[str, Tensor]:
        """The tensors, by name."""
        return {field.name: x for field in fields(self) if isinstance(x := getattr(self, field.name), Tensor)}

    def facts(self) -> dict[str, Any]:
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
        depends_on(
            f"a tensor with layout {self.layout!r}",
            f"such tensors are no part of exported or traced programs: {self.alternative}{self.advice}",
        )

    # --- rules --------------------------------------------------------------------------------------------------

    def apply(self, call: Call, inputs: Sequence[Value]) -> tuple[Value, ...]:
        """Compute a row on inputs of which one has this form, by its rule."""
        self.tell_capture()
        args, kwargs = _arguments(call, inputs)
        rule = self.rules.get(call.op.name)
        result = NotImplemented if rule is None else rule(*args, **kwargs)
        if result is NotImplemented:
            result = self.derived(call.op, args, kwargs)
        results = result if isinstance(result, tuple) else (result,)
        return tuple([x._read() for x in results])

    def derived(self, op: OpDef, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result without a rule, from what the row says of itself."""
        del args, kwargs
        raise self.refusal(op.name)

    def refusal(self, name: str, why: str = "") -> UnsupportedCallError:
        """The error for an operator without a rule, with what prevents one."""
        return UnsupportedCallError(
            f"Could not run 'aten::{name}' with arguments from the '{self.kind}{self.values.device.type.upper()}' "
            f"backend: there is no rule for {name}() on tensors with layout {self.layout!r}{why}; {self.advice}"
        )

    # --- what the layers below ask of a sharding ------------------------------------------------------------------

    def type_like(self, kind: type) -> type:
        """Refuses parameters and buffers."""
        raise UnsupportedCallError(
            f"{kind.__name__}(): a tensor with layout {self.layout!r} cannot be a {kind.__name__.lower()} of a module; "
            f"keep it in an attribute, or {self.advice}"
        )

    def of_gradient(self, gradient: Value) -> Value:
        """The gradient of such a tensor, from that of its values."""
        return self.gradient(wrap(gradient))._read()

    def to_cotangent(self, gradient: Value, text: str) -> NoReturn:
        """Refuses gradients for outputs with this form; `x.backward(gradient)` takes them."""
        del gradient
        raise GradientError(
            f"{text} belongs to a tensor with layout {self.layout!r}: use y.backward(gradient), or y.to_dense()"
        )

    def seed(self, gradient: Value) -> NoReturn:
        """Refuses backward passes without a gradient."""
        self.to_cotangent(gradient, "the gradient 1")

    def whole(self, value: Value, size: Any) -> Value:
        """A plain value beside such tensors stays plain."""
        del size
        return value

    def created(self, size: Sequence[int], create: Callable[[Any, int], Tensor], row: str = "") -> Value:
        """A new value, as by `zeros_like`, which is made by a factory row: by default one with new values."""
        if tuple(size) != tuple(self.size):
            raise self.refusal(f"new_{row}")
        return self.with_values(create(tuple(self.values.shape), 0))._read()

    def to_sharding(self, value: Value, sharding: Any) -> Value:
        """A value that is written to a tensor with another form; `RuntimeError` for a layout that differs."""
        own = value.aval.sharding
        if sharding is None and own is self:
            return self.whole_array()._read()
        target, source = _layout_of(sharding), _layout_of(own)
        if target != source:
            raise UnsupportedCallError(
                f"cannot write a tensor with layout {source} to one with layout {target}; assign the result instead"
            )
        return value


def _layout_of(form: Any) -> str:
    return "torch.strided" if form is None else repr(form.layout)


def rule(forms: type[Form] | Sequence[type[Form]], *rows: str) -> Callable[[Rule], Rule]:
    """Make the decorated function the rule of these rows for tensors of some forms."""

    def add(function: Rule) -> Rule:
        for form in forms if isinstance(forms, Sequence) else (forms,):
            form.rules.update(dict.fromkeys(rows, function))
        return function

    return add


def _arguments(call: Call, inputs: Sequence[Value]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call's row, with tensors for its inputs."""
    rest = map(wrap, inputs)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
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


def form_of(x: Tensor) -> Any:
    """The form of a tensor; None for one that is an array."""
    return x._read().aval.sharding


class Composed(Value):
    """The value of a tensor with a form. It is no part of a graph: gradients flow through the form's values."""

    __slots__ = ()

    def __init__(self, form: Form) -> None:
        values, sharding = form.values._read().aval, cast("Sharding", form)
        self.origin = None
        self.inputs = ()
        self.aval = Aval(form.shape, form.dtype, False, values.device, values.inference, None, sharding)
        self.extras = None
        self.num = -1
        form.tell_capture()

    @property
    def array(self) -> NoReturn:
        """Raises: there is no single array."""
        form: Any = self.aval.sharding
        raise LayoutError(f"a tensor with layout {form.layout!r} has no single array; {form.advice}")

    @property
    def _values(self) -> Value:
        form: Any = self.aval.sharding
        return form.values._read()

    @property
    def tape(self) -> Tape | None:
        """How the values take part in differentiation."""
        return self._values.tape

    @tape.setter
    def tape(self, tape: Tape | None) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]  the values' own
        form: Any = self.aval.sharding
        form.values._read().tape = form.values._tape = tape

    @property
    def time(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]  the values' own
        """The number of the recording of the values."""
        return self._values.time


def composed(form: Form) -> Tensor:
    """A new tensor with a form."""
    return wrap(Composed(form))


class ComposedTensor(Tensor):
    """A tensor that consists of others. Operators on it follow the rules of its form."""

    @property
    def _form(self) -> Form:
        form = self._read().aval.sharding
        assert isinstance(form, Form), "its values are composed"
        return form

    @property
    def layout(self) -> layout:
        """How its elements are stored."""
        return self._form.layout

    # --- gradients ----------------------------------------------------------------------------------------------

    def _require_grad(self, requires_grad: bool, refusal: str = "") -> Tensor:
        self._form.values._require_grad(requires_grad, *filter(None, (refusal,)))
        return self

    @property
    def grad(self) -> Tensor | None:
        """The gradient of the elements that are stored, with the same form; or None."""
        gradient = self._form.values.grad
        return None if gradient is None else self._form.gradient(gradient)

    @grad.setter
    def grad(self, grad: Tensor | None) -> None:
        self._form.values.grad = None if grad is None else self._values_like(grad, "the assigned gradient")

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    def _values_like(self, x: Tensor, what: str) -> Tensor:
        """The values of a tensor that has its elements at the same places."""
        form, own = form_of(x), self._form
        if form is None or form.layout is not own.layout or form.values.shape != own.values.shape:
            raise GradientError(
                f"{what} must have layout {own.layout!r} and values of size {list(own.values.shape)}, as the tensor "
                "itself has"
            )
        return form.values

    @property
    def grad_fn(self) -> Any:
        """The recorded application that has made the values, or None for a leaf."""
        return self._form.values.grad_fn

    def retain_grad(self) -> None:
        """Accumulate the gradient in `.grad` even if the tensor is not a leaf."""
        self._form.values.retain_grad()

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad` was called."""
        return self._form.values.retains_grad

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> Any:
        """Call `hook(grad)` when the gradient is complete; a result other than None replaces the gradient."""
        form = self._form

        def on_values(grad: Tensor) -> Tensor | None:
            result = hook(form.gradient(grad))
            return None if result is None else self._values_like(result, "the hook's result")

        return form.values.register_hook(on_values)

    def register_post_accumulate_grad_hook(self, hook: Any) -> NoReturn:
        """Raises: such tensors are no parameters."""
        raise self._form.refusal("register_post_accumulate_grad_hook")

    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  the stub's parameters
        self, gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = False
    ) -> None:
        """Add gradients to `.grad` of the leaves; `gradient` has the same form."""
        if gradient is None:
            raise GradientError("grad can be implicitly created only for scalar outputs; give a gradient")
        values = self._values_like(gradient, "the gradient")
        self._form.values.backward(values, retain_graph=retain_graph, create_graph=create_graph)

    def detach(self) -> Tensor:
        """A tensor of the same elements through which no gradient flows."""
        return self._form.each_part(Tensor.detach)

    def detach_(self) -> Tensor:
        """Make it a leaf, without history."""
        self._form.values.detach_()
        return self

    # --- elements -----------------------------------------------------------------------------------------------

    def _read_concrete(self, *, decides: bool = False) -> NoReturn:
        del decides
        raise ArgumentError(
            f"can't convert {self._form.kind} layout tensor to numpy. Use Tensor.to_dense() first."
            if self._form.kind.startswith("Sparse")
            else f"a tensor with layout {self.layout!r} has no single array; {self._form.advice}"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) not in memo:
            if not self.is_leaf:
                raise GradientError(
                    "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
                    "moment. Deep-copy `tensor.detach()` instead."
                )
            memo[id(self)] = self._form.each_part(lambda part: part.__deepcopy__(memo))
        return memo[id(self)]

    def __copy__(self) -> Tensor:
        return self.detach().requires_grad_(self.requires_grad)

    def __reduce_ex__(self, protocol: int) -> Any:
        form = self._form
        return rebuilt, (form.layout, form.facts(), form.parts())


def rebuilt(layout: layout, facts: dict[str, Any], parts: dict[str, Tensor]) -> Tensor:
    """The tensor that a pickle describes; whether it requires a gradient, its values say."""
    return composed(FORMS[layout].restored(facts, parts))
