"""`weft.cond` and `weft.while_loop`: control flow that depends on values, also where these are not known yet.

While a function is captured, its branches are recorded apart and outlined (`_lazy/outline.py`), and one operator of
`lax.cond` or `lax.while_loop` around them is recorded. Otherwise the predicate is read, and Python's control flow runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax

from weft._base.dtype import bool_
from weft._base.site import user_site
from weft._base.state import Pending, ambient, using
from weft._base.types import AnyCallable, Arg, AttributeValue, PyTree
from weft._dispatch import apply, apply_signature
from weft._interop.structure import Flat, tensors_in
from weft._lazy.aval import Aval
from weft._lazy.call import ONE
from weft._lazy.external import taken_in
from weft._lazy.infer import call_of, common_device
from weft._lazy.outline import has_user_derivatives, outline
from weft._lazy.precondition import Precondition
from weft._lazy.signature import Signature
from weft._lazy.value import Value
from weft._tensor.convert import tensor as new_tensor
from weft._tensor.generator import Generator
from weft._tensor.kind_names import advice
from weft._tensor.tensor import Tensor, wrap
from weft._tensor.view import set_value
from weft.errors import ArgumentError, CompileError, OutOfRangeError
from weft.ops._table import TABLE

_ALIAS = call_of(TABLE["alias"], (ONE,))
_MOST_SIGNATURES = 256
# no cell: a cache, keyed by all that its entries depend on
_signatures: dict[Any, Signature] = {}


class TransformGetItemToIndex(nullcontext[None]):
    """A block that changes nothing: `vmap` indexes by tensors without it."""


def cond(
    pred: bool | int | float | Tensor,
    true_fn: AnyCallable,
    false_fn: AnyCallable,
    operands: Sequence[PyTree] = (),
) -> PyTree:
    """`true_fn(*operands)` if `pred` is true, else `false_fn(*operands)`.

    In a function that is compiled or exported, both are recorded, the program runs one of them, and gradients flow
    through it. Both must return tensors of the same types and shapes in the same containers, and write to nothing from
    outside.
    """
    if not callable(true_fn) or not callable(false_fn):
        raise ArgumentError("Expect both branches to be callable.")
    _require_containers("operands", operands)
    if not isinstance(pred, (bool, int, float, Tensor)):
        raise OutOfRangeError(f"Expected pred to be bool or tensor, but got {pred}{advice(pred)}.")
    if not isinstance(pred, Tensor):
        return true_fn(*operands) if pred else false_fn(*operands)
    if pred.numel() != 1:
        raise OutOfRangeError(f"Expected pred to be bool or single-element tensor, but got shape {list(pred.shape)}.")
    # The value is at hand, so Python's own `if` decides, and only one branch runs.
    if ambient().capture is None:
        return true_fn(*operands) if pred.item() else false_fn(*operands)
    branches = [_recorded("cond", fn, operands) for fn in (true_fn, false_fn)]
    _require_same("cond", ("true_fn", branches[0].results), ("false_fn", branches[1].results))
    return branches[0].results.rebuilt([wrap(value) for value in _applied_cond(pred._read(), branches)])


def while_loop(cond_fn: AnyCallable, body_fn: AnyCallable, carried_inputs: Sequence[PyTree]) -> tuple[PyTree, ...]:
    """The values after `values = body_fn(*values)` has run while `cond_fn(*values)`, from `carried_inputs` on.

    In a function that is compiled or exported, the loop is recorded, no gradients flow through it, and numbers among
    the carried values become tensors. `body_fn` must return values of the types and shapes that it takes.
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise ArgumentError("while_loop: expected cond_fn and body_fn to be callable")
    _require_containers("carried_inputs", carried_inputs)
    if ambient().capture is not None:
        return _recorded_loop(cond_fn, body_fn, carried_inputs)
    values = tuple(carried_inputs)
    while cond_fn(*values):
        before = tensors_in(values)
        values = _as_tuple(body_fn(*values))
        _require_same("while_loop", ("carried_inputs", before), ("body_fn", tensors_in(values)), numbers=False)
    return values


# --- recording --------------------------------------------------------------------------------------------------


class _Part:
    """A function that was recorded apart: the results, the signature that computes them, and its inputs."""

    def __init__(self, name: str, results: Flat, region: Pending) -> None:
        self.results = results
        self.signature, self.inputs = outline([taken_in(x._read()) for x in results.inputs], region, name)


class _Apart:
    """The ambient `capture` while a branch is recorded: what it uses is told to the capture around it.

    What it would change is refused, since it may not run.
    """

    defers = False

    def __init__(self, outer: Arg, name: str, *, repeats: bool) -> None:
        self.outer = outer
        self.region = Pending(sys.maxsize, watched=False)
        self.region.branch = True
        self._name = name
        self._repeats = repeats
        self._leaves: list[Value] = []
        self._inside: set[int] = set()
        self._counted = 0

    def __getattr__(self, name: str) -> AttributeValue:
        return getattr(self.outer, name)

    def is_inside(self, value: Value) -> bool:
        """Whether the branch has recorded or made a value."""
        self._inside.update([id(one) for one in self.region[self._counted :]])
        self._counted = len(self.region)
        return id(value) in self._inside

    def creates_leaf(self, value: Value) -> None:
        """The branch makes a tensor of Python's data."""
        self._leaves.append(value)  # alive, so that its identity stands for it
        self._inside.add(id(value))
        self.outer.creates_leaf(value)

    def read(self, tensor: Tensor, value: Value) -> None:
        """An operator reads a tensor."""
        if not self.is_inside(value):
            self.outer.read(tensor, value)

    def wrote(self, tensor: Tensor, old: Value) -> None:
        """A tensor got a new value in place: refused for one from outside, which gets its old value again."""
        if not self.is_inside(old):
            set_value(tensor, old)
            self._refuse(f"writes to a tensor of shape {list(tensor.shape)} from outside", "return the new value")

    def changes(self, tensor: Tensor, what: str) -> None:
        """A tensor changes in another way than by its elements."""
        if not self.is_inside(tensor._read()):
            self._refuse(f"changes {what} of a tensor from outside", "do so outside of it")

    def writes_grad(self, role: object, *, reads: bool) -> None:
        """A leaf's `.grad` is about to change."""
        del role, reads
        self._refuse("accumulates gradients", "use torch.autograd.grad")

    def draws(self, generator: Generator) -> tuple[Value, Value]:
        """The (seed, offset) of a random operator."""
        if self._repeats:
            self._refuse("draws random numbers, which would be the same in each iteration", "draw them before the loop")
        return self.outer.draws(generator)

    def _refuse(self, what: str, instead: str) -> None:
        raise CompileError(f"{self._name}: a recorded function {what} at {user_site()}; {instead} instead")


def _recorded(name: str, function: AnyCallable, operands: Sequence[PyTree], *, repeats: bool = False) -> _Part:
    """What a function records, without being recorded among what is around it."""
    capture = _Apart(ambient().capture, name, repeats=repeats)
    with using(pending=capture.region, capture=capture, observers=()):
        results = tensors_in(function(*operands))
        for tensor in results.inputs:
            tensor._read()
    if has_user_derivatives(capture.region):
        raise CompileError(
            f"{name}: a recorded function has hooks or an autograd.Function, whose derivative would be lost; make an "
            "operator of it with weft.library.custom_op and register_autograd"
        )
    return _Part(name, results, capture.region)


def _applied_cond(pred: Value, branches: Sequence[_Part]) -> tuple[Value, ...]:
    inputs, places = _shared([part.inputs for part in branches])
    signatures = [part.signature for part in branches]
    key = ("cond", *signatures, *places, pred.aval)
    if key not in _signatures:

        def function(test: jax.Array, *arrays: jax.Array) -> tuple[jax.Array, ...]:
            yes, no = (_picking(s.fn, at) for s, at in zip(signatures, places, strict=True))
            return lax.cond(_truth(test), yes, no, *arrays)

        _keep(key, "cond", function, (pred.aval, *[x.aval for x in inputs]), _precondition(signatures, places))
    return apply_signature(_signatures[key], (pred, *inputs)) if branches[0].signature.outputs else ()


def _precondition(signatures: Sequence[Signature], places: Sequence[tuple[int, ...]]) -> Precondition | None:
    """What must hold in the branch that is taken."""
    demands = [(at, s.precondition, n) for n, (s, at) in enumerate(zip(signatures, places, strict=True))]
    if all(demand is None for _, demand, _ in demands):
        return None

    def codes(test: jax.Array, *arrays: jax.Array) -> list[jax.Array]:
        codes_here: list[jax.Array] = []
        for at, demand, number in demands:
            if demand is not None:
                applies = _truth(test) == (number == 0)
                codes_here += [jnp.where(applies, code, 0) for code in demand.codes(*[arrays[i] for i in at])]
        return codes_here

    return Precondition(codes, [t for _, demand, _ in demands if demand is not None for t in demand.templates])


def _recorded_loop(cond_fn: AnyCallable, body_fn: AnyCallable, carried: Sequence[PyTree]) -> tuple[PyTree, ...]:
    start = tensors_in(jax.tree.map(_as_tensor, tuple(carried), is_leaf=lambda x: isinstance(x, Tensor)))
    # Copies for the recording: what the body computes with them must not be taken for uses of the carried tensors.
    initial = [taken_in(x._read()) for x in start.inputs]
    leaves = [Value(x.aval, x.content) for x in initial]
    iterates: list[Tensor] = [wrap(apply(_ALIAS, (leaf,))[0]) for leaf in leaves]
    with using(grad=False):
        values = start.rebuilt(iterates)
        test = _recorded("while_loop", cond_fn, values, repeats=True)
        body = _recorded("while_loop", lambda *x: _as_tuple(body_fn(*x)), values, repeats=True)
        if [x.numel() for x in test.results.inputs] != [1]:
            raise ArgumentError(
                "while_loop: cond_fn must return a boolean scalar tensor that depends on the carried values, got "
                f"{test.results.rebuilt(test.results.inputs)}"
            )
        _require_same("while_loop", ("carried_inputs", start), ("body_fn", body.results))
        position_of = {id(x._read()): at for at, x in enumerate(iterates)}
        # What both parts read from outside is passed once, as constants of the loop.
        outside, places = _shared([[x for x in part.inputs if id(x) not in position_of] for part in (test, body)])
        parts = [_Iteration(part, position_of, at) for part, at in zip((test, body), places, strict=True)]
        key = ("while_loop", *[(part.signature, part.sources) for part in parts], len(outside), len(initial))
        if key not in _signatures:
            condition, step = parts

            def function(*arrays: jax.Array) -> PyTree:
                consts, carry = arrays[: len(outside)], arrays[len(outside) :]
                return lax.while_loop(
                    lambda now: _truth(condition(consts, now)[0]), lambda now: step(consts, now), carry
                )

            avals = tuple([x.aval for x in (*outside, *initial)])
            _keep(key, "while_loop", function, avals, None)
        return start.rebuilt([wrap(x) for x in apply_signature(_signatures[key], (*outside, *initial))])


class _Iteration:
    """A part of a loop as a function of the arrays from outside, and of the carried ones.

    sources   of each input: whether it is carried, and its number there
    """

    def __init__(self, part: _Part, position_of: dict[int, int], outside: Sequence[int]) -> None:
        following = iter(outside)
        self.signature = part.signature
        self.sources = tuple(
            [(True, position_of[id(x)]) if id(x) in position_of else (False, next(following)) for x in part.inputs]
        )

    def __call__(self, consts: Sequence[jax.Array], carry: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
        arrays = [(carry if carried else consts)[at] for carried, at in self.sources]
        return _plain(self.signature.fn(*arrays))


def _keep(
    key: Hashable, name: str, function: AnyCallable, avals: tuple[Aval, ...], precondition: Precondition | None
) -> None:
    if len(_signatures) >= _MOST_SIGNATURES:
        del _signatures[next(iter(_signatures))]
    device = common_device(name, avals)
    _signatures[key] = Signature(name, function, avals, device=device, precondition=precondition)


def _shared(parts: Sequence[Sequence[Value]]) -> tuple[list[Value], list[tuple[int, ...]]]:
    """All values, each once, and the places of those of each part among them."""
    numbers: dict[Value, int] = {}
    places = [tuple([numbers.setdefault(x, len(numbers)) for x in part]) for part in parts]
    return list(numbers), places


def _picking(fn: AnyCallable, places: Sequence[int]) -> Callable[..., tuple[jax.Array, ...]]:
    return lambda *arrays: _plain(fn(*[arrays[at] for at in places]))


def _plain(arrays: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    """Arrays whose types are not weak, so that those of both branches are equal."""
    return tuple([lax.convert_element_type(a, a.dtype) for a in arrays])


def _truth(array: jax.Array) -> jax.Array:
    return array.reshape(()).astype(bool_.numpy)


# --- arguments and results --------------------------------------------------------------------------------------


def _require_containers(name: str, things: object) -> None:
    if not isinstance(things, (tuple, list)):
        raise ArgumentError(
            f"Expect {name} to be a tuple of possibly nested dict/list/tuple that only consists of tensor leaves, but "
            f"got {things}."
        )


def _as_tuple(result: PyTree) -> tuple[PyTree, ...]:
    return tuple(cast("Sequence[Any]", result)) if isinstance(result, (tuple, list)) else (result,)


def _as_tensor(x: Arg) -> Arg:
    return new_tensor(x) if isinstance(x, (bool, int, float)) else x


def _require_same(name: str, one: tuple[str, Flat], other: tuple[str, Flat], *, numbers: bool = True) -> None:
    """Refuse results of other types, shapes, containers or (with `numbers`) other values that are no tensors."""
    (first, a), (second, b) = one, other
    if a.tree != b.tree or len(a.inputs) != len(b.inputs) or (numbers and a.rest != b.rest):
        raise CompileError(
            f"{name}: {first} and {second} must give tensors in the same containers, and the same numbers, but "
            f"{first} gives {_described(a)}, and {second} {_described(b)}"
        )
    for at, (x, y) in enumerate(zip(a.inputs, b.inputs, strict=True)):
        if (x.shape, x.dtype, x.device) != (y.shape, y.dtype, y.device):
            raise CompileError(
                f"{name}: expected {first} and {second} to give tensors of one shape and dtype, but tensor {at} is "
                f"{_type(x)} in {first} and {_type(y)} in {second}"
            )


def _described(flat: Flat) -> str:
    return str(flat.rebuilt([_type(x) for x in flat.inputs]))


def _type(x: Tensor) -> str:
    return f"{x.dtype.name}{list(x.shape)}"
