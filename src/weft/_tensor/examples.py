"""A function of one example, recorded once and carried out for all examples.

The function runs on tensors that stand for one example, and is recorded apart, as if there were no others. What the
caller needs of this record is then recorded in the caller's graph, application by application, for all examples
(`_lazy/batched.py`). So views, writes, composites and backward passes within the function are those of one example,
and backward passes over its results find applications like any other.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from textwrap import indent
from typing import NamedTuple

import jax
import jax.numpy as jnp

from weft._autograd.graph import has_own_derivative
from weft._base.capture import UNCAPTURED
from weft._base.guards import is_list_or_tuple
from weft._base.pending import Pending
from weft._base.state import Ambient, ambient, using
from weft._base.types import AnyCallable, Arg, AttributeValue
from weft._dispatch import apply
from weft._lazy.aval import Aval, aval_of, marked
from weft._lazy.batched import batched
from weft._lazy.call import ONE
from weft._lazy.external import taken_in
from weft._lazy.infer import call_of
from weft._lazy.record import record
from weft._lazy.role import Interior, Leaf, Role
from weft._lazy.signature import Signature
from weft._lazy.value import Absent, Doubt, Shared, Value, inputs_first
from weft._tensor.generator import Generator
from weft._tensor.scalar import number
from weft._tensor.tensor import Results, Tensor, wrap
from weft._tensor.view import set_value
from weft.errors import GradientError, InPlaceError, SettingError, TransformError
from weft.ops._table import TABLE

_ALIAS = call_of(TABLE["alias"], (ONE,))


class VmapInfo(NamedTuple):
    """What a rule of a user's function is told of the `vmap` that calls it."""

    batch_size: int
    randomness: str


def _refuse() -> None:
    raise TransformError(
        "vmap: a tensor that stands for one example has left the function that was mapped, and has no elements "
        "outside; let the function return it"
    )


_OF_ONE_EXAMPLE = Absent(_refuse)
"""In place of the arrays of what stands for one example."""


class Examples:
    """The ambient `capture` while a function of one example runs. What it uses is told to the capture around it.

    size        how many examples there are
    randomness  whether random numbers are refused ("error"), the "same" for all examples, or "different"
    region      what the function has recorded
    defers      whether calls of functions that are no operators can be a part of it: no
    """

    defers = False

    def __init__(self, size: int, randomness: str) -> None:
        self.size = size
        self.randomness = randomness
        self.region = Pending(sys.maxsize, watched=False)  # what is carried out is shown
        self._called_from(ambient())
        self._transform = ambient().context.transform
        self._inside: set[int] = set()
        self._counted = 0
        self._leaves: list[Value] = []
        self._for_all: dict[Value, Value] = {}  # what stands in the caller's graph for a value of the function
        self._batched: set[Value] = set()  # the values that differ between examples
        self._families: dict[int, tuple[Value, ...]] = {}  # all outputs in the caller's graph, by the inputs' identity
        self._doubts: dict[Doubt | None, Doubt | None] = {}
        self._written: dict[int, Tensor] = {}
        self._views: list[weakref.ref[Tensor]] = []

    def _called_from(self, state: Ambient) -> None:
        """Carry out what follows in the caller's list of pending values."""
        self._around: Arg = state.capture or UNCAPTURED
        self._modes = {"pending": state.pending, "capture": state.capture, "observers": state.watchers.observers}

    # --- running ------------------------------------------------------------------------------------------------

    def run(self, function: AnyCallable, arguments: Sequence[object]) -> Results:
        """`function(*arguments)`, recorded as for one example; `result_of` takes its results to the caller."""
        with self._recording():
            results = function(*arguments)
        self._finish()
        return results

    def _recording(self) -> using:
        apart = ambient().autocast.apart()
        return using(pending=self.region, capture=self, observers=(), autocast=apart, anomaly=False)

    def example_of(self, tensor: Tensor) -> Tensor:
        """A tensor that stands for one example of `tensor`, whose first dim counts the examples."""
        value = taken_in(tensor._read())
        self._around.read(tensor, value)
        return wrap(self._example_value(value))

    def _example_value(self, value: Value) -> Value:
        leaf = self._stand_in(_example_aval(value.aval), value)
        if value.role is not None:
            leaf.role = Leaf()
        with using(pending=self.region, capture=self, observers=(), grad=True, inference=False):
            return apply(_ALIAS, (leaf,))[0]  # unlike a leaf, it can be written to

    def _stand_in(self, aval: Aval, value: Value) -> Value:
        leaf = Value(aval, _OF_ONE_EXAMPLE)
        self._for_all[leaf] = value
        self._batched.add(leaf)
        return leaf

    def result_of(self, tensor: Tensor) -> tuple[Tensor, bool]:
        """A result of the function as a tensor of the caller's, and whether its first dim counts the examples.

        If not, it is the same for all examples.
        """
        value = self._carried_out(tensor._read())
        return (wrap(value) if value is not tensor._value else tensor), tensor._read() in self._batched

    def for_each(self, tensor: Tensor) -> Tensor:
        """A result of the function with the examples along a new first dim, also if it is the same for all."""
        result, differs = self.result_of(tensor)
        return result if differs else result.expand(self.size, *result.shape)

    def takes_rule(self, args: Sequence[object]) -> bool:
        """Whether a call can be computed for all examples at once.

        It cannot if the function that is mapped takes derivatives, which go through what stands for one example.
        """
        if ambient().context.transform is not self._transform:
            return False
        return any(isinstance(x, Tensor) and self.result_of(x)[1] for x in args)

    def by_rule(self, rule: Callable[..., tuple[Arg, Arg]], args: Sequence[object]) -> Results:
        """The results of a user's rule for all examples, as tensors that stand for one."""
        pairs = [self.result_of(x) if isinstance(x, Tensor) else (x, False) for x in args]
        dims = tuple([0 if differs else None for _, differs in pairs])
        with using(**self._modes):
            results, out_dims = rule(VmapInfo(self.size, self.randomness), dims, *[x for x, _ in pairs])
            several = is_list_or_tuple(results)
            parts = list(results) if several else [results]
            ends = list(out_dims) if is_list_or_tuple(out_dims) else [out_dims] * len(parts)
            if len(ends) != len(parts):
                raise TransformError(
                    f"vmap staticmethod: expected one out_dim for each of the {len(parts)} outputs, got {len(ends)}"
                )
            fronts = [x if end is None else x.movedim((end,), (0,)) for x, end in zip(parts, ends, strict=True)]
        examples = [x if end is None else self.example_of(x) for x, end in zip(fronts, ends, strict=True)]
        return tuple(examples) if several else examples[0]

    def _finish(self) -> None:
        """Give tensors from outside that were written, or viewed anew, their values in the caller's graph."""
        for tensor in self._written.values():
            value = tensor._read()
            if self.is_inside(value):
                set_value(tensor, self._carried_out(value))
        for ref in self._views:
            view = ref()
            if view is not None and view._value is not None and view._alias is not None:
                base = view._alias.base._value
                if base is not None and not self.is_inside(base) and self.is_inside(view._value):
                    view._value = self._carried_out(view._value)

    # --- carrying out -------------------------------------------------------------------------------------------

    def _carried_out(self, value: Value) -> Value:
        """What stands in the caller's graph for a value of the function; records what is missing there."""
        for_all = self._for_all
        if value not in for_all and self.is_inside(value):
            with using(**self._modes, grad=True, inference=False):
                on = ambient()
                with using(grad=False):
                    off = ambient()
            for here in inputs_first(value, lambda x: x not in for_all and self.is_inside(x), lambda _: True):
                self._carry_out_check(here)
                if here not in for_all:
                    flows = isinstance(here.role, Interior)
                    for_all[here] = self._applied(here, on if flows else off)
        return for_all.get(value, value)

    def _carry_out_check(self, value: Value) -> None:
        """Record the application whose check a derivative depends on, which nobody else may need."""
        origin = value.origin
        doubt = getattr(value, "doubt", None)
        if origin is None or doubt is None or origin.signature.precondition is not None or doubt in self._doubts:
            return
        for checked in self.region:
            signature = checked.origin.signature
            if signature.precondition is not None and getattr(checked, "doubt", None) is doubt:
                self._carried_out(checked)
                return

    def _applied(self, value: Value, state: Arg) -> Value:
        """Record the application that has made a value, for all examples; the value is marked if they differ."""
        origin, inputs = value.origin, value.inputs
        assert origin is not None, "what the function has recorded has an origin"
        flags = tuple([x in self._batched for x in inputs])
        if True in flags:
            self._batched.add(value)
        outputs = self._families.get(id(inputs)) if type(inputs) is Shared else None
        if outputs is None:
            signature = origin.signature
            if True in flags:
                signature = batched(signature, flags, self.size)
            doubt = getattr(value, "doubt", None) if signature.requirement else None
            values = record(
                signature, tuple([self._for_all.get(x, x) for x in inputs]), state, self._doubts.get(doubt, doubt)
            )
            if doubt is not None:
                self._doubts.setdefault(doubt, values[0].doubt)
            outputs = (*values, *values[0].extras)
            if type(inputs) is Shared:
                self._families[id(inputs)] = outputs
        result = outputs[origin.index]
        if value.role is not None and result.role is not None and has_own_derivative(value):
            self._keep_derivative(value, value.role, result)
        return result

    def _keep_derivative(self, value: Value, role: Role, result: Value) -> None:
        """Let the user's derivative of a value serve for what stands for it in the caller's graph."""
        if not isinstance(role, Interior) or role.custom is None:
            raise GradientError(
                "vmap: gradients would flow from outside to a tensor with hooks, which serve for one example; "
                "differentiate within the function that is mapped"
            )
        result.role = Interior(custom=partial(self._gradients, value, role.custom), release=role.release)

    def _gradients(
        self, value: Value, custom: Callable[..., list[Value | None]], cotangents: dict[int, Value], _: object
    ) -> list[Value | None]:
        """The caller's gradients of an application's inputs, by the user's derivative for one example."""
        self._called_from(ambient())
        if value in self._batched:
            cotangents = {index: self._example_value(grad) for index, grad in cotangents.items()}
        members = [x for x in self.region if x.inputs is value.inputs]
        with self._recording():
            grads = custom(cotangents, members)
        return [self._gradient_for(x, grad) for x, grad in zip(value.inputs, grads, strict=True)]

    def _gradient_for(self, x: Value, grad: Value | None) -> Value | None:
        """A gradient of an input: one for each example if the input has one for each, else their sum."""
        if grad is None:
            return None
        result = self._carried_out(grad)
        if (grad in self._batched) is (x in self._batched):
            return result
        whole: Arg = wrap(result)
        return (whole.sum(0) if grad in self._batched else whole.expand(self.size, *whole.shape))._read()

    # --- what the function does ---------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> AttributeValue:
        """What else captures are told is only for the capture around this one."""
        return getattr(self._around, name)

    def is_inside(self, value: Value) -> bool:
        """Whether the function has recorded or made a value."""
        region = self.region
        if self._counted < len(region):
            self._inside.update([id(one) for one in region[self._counted :]])
            self._counted = len(region)
        return id(value) in self._inside

    def creates_leaf(self, value: Value) -> None:
        """The function makes a tensor of Python's data."""
        self._leaves.append(value)  # alive, so that its identity stands for it
        self._for_all[value] = value
        self._around.creates_leaf(value)

    def read(self, tensor: Tensor, value: Value) -> None:
        """An operator reads a tensor."""
        if value in self._for_all:
            return
        if not self.is_inside(value):
            self._around.read(tensor, value)
        elif tensor._alias is not None:
            self._views.append(weakref.ref(tensor))

    def wrote(self, tensor: Tensor, old: Value) -> None:
        """A tensor got a new value in place: refused for one from outside if the examples' values differ."""
        if old in self._for_all or self.is_inside(old):
            return
        new = tensor._read()
        self._carried_out(new)
        if new in self._batched:
            set_value(tensor, old)
            raise InPlaceError(_SHARED_TARGET)
        self._written.setdefault(id(tensor), tensor)
        self._around.wrote(tensor, old)

    def changes(self, tensor: Tensor, what: str) -> None:
        """A tensor changes in another way than by its elements."""
        if not self.is_inside(tensor._read()):
            self._around.changes(tensor, what)

    def writes_grad(self, role: Leaf, *, reads: bool) -> None:
        """A leaf's `.grad` is about to change: refused for a backward pass."""
        if reads:
            raise backward_inside()
        self._around.writes_grad(role, reads=reads)

    def draws(self, generator: Generator) -> tuple[Value, Value]:
        """The (seed, offset) of a random operator."""
        if self.randomness == "error":
            raise SettingError(
                "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
                "'different' randomness flags on vmap or perform the randomness operation out of vmap"
            )
        if self._around is not UNCAPTURED:
            with using(**self._modes):
                seed, offset = self._around.draws(generator)
        else:
            seed, offset = map(number, generator.draw())
        if self.randomness == "same":
            return seed, offset
        with using(**self._modes, grad=False):
            seeds = record(_seeds(seed.aval, self.size), (seed,), ambient())[0]
        return self._stand_in(seed.aval, seeds), offset

    def needs_elements(self, value: Value, *, decides: bool = False) -> None:
        """The function reads a value: it is computed if it is the same for all examples."""
        outer = self._carried_out(value)
        if value in self._batched:
            raise TransformError(_NO_CONTROL if decides else _NO_ITEM)
        self._around.needs_elements(outer, decides=decides)
        with using(**self._modes):
            value.content = outer.read()

    def show(self, tensor: Tensor, text: Callable[[Tensor], str]) -> str:
        """The text of a tensor with all examples, as PyTorch shows it; `text` gives that of the caller's tensors."""
        whole, differs = self.result_of(tensor)
        with using(**self._modes):
            inner = text(whole)
        level, around = 1, self._around
        while isinstance(around, Examples):
            level, around = level + 1, around._around
        return f"BatchedTensor(lvl={level}, bdim=0, value=\n{indent(inner, '    ')}\n)" if differs else inner

    def needs_value(self, what: str = "a tensor's value", advice: str = "") -> None:
        """The function needs something that is not recorded."""
        self._around.needs_value(what, advice)


@lru_cache(maxsize=1024)
def _example_aval(aval: Aval) -> Aval:
    """The type of one example of several along the first dim."""
    return marked(aval_of(aval.shape[1:], aval.dtype, device=aval.device), aval.inference)


@lru_cache(maxsize=64)
def _seeds(aval: Aval, size: int) -> Signature:
    """Makes a seed for each example from one seed."""
    return Signature("seeds", partial(_split, size=size), (aval,), device=aval.device, differentiable=False)


def _split(seed: jax.Array, size: int) -> tuple[jax.Array]:
    """SplitMix64 (Steele, Lea and Flood, 2014): seeds of streams that are apart, also where they are split again."""
    x = seed.astype(jnp.uint64) + jnp.arange(1, size + 1, dtype=jnp.uint64) * jnp.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> 30)) * jnp.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> 27)) * jnp.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> 31)).astype(jnp.int64),)


def backward_inside() -> GradientError:
    """The error for `backward()` within a function that is transformed."""
    return GradientError(
        "backward() called inside a functorch transform. This is not supported, please use functorch.grad or "
        "functorch.vjp instead or call backward() outside of functorch transforms."
    )


_NO_ITEM = (
    "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, "
    "please try to rewrite what you're doing with other operations. If error is occurring somewhere inside PyTorch "
    "internals, please file a bug report."
)
_NO_CONTROL = (
    "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't support that "
    "yet, please file an issue at https://github.com/pytorch/pytorch/issues ."
)
_SHARED_TARGET = (
    "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args "
    "that has more elements than `self`. This happened due to `other` being vmapped over but `self` not being vmapped "
    "over in a vmap. Please try to use out-of-place operators instead of inplace arithmetic. If said operator is being "
    "called inside the PyTorch framework, please file a bug report instead."
)
