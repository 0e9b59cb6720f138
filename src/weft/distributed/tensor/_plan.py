"""Calls on sharded values: what is moved first, what runs on each process's parts, and what comes out.

`apply` is what a `Sharding` does with a call, in this order: a plan that is known and sends nothing; calls that need
more than one strategy (split classes, split rows, means); inputs that are not distributed; and the plan, made at the
first call with such types. Every process makes the same plan from the same types, so none has to ask another.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from math import prod

import jax
import jax.numpy as jnp

from weft._base.cell import LocalCell
from weft._base.site import warn_user
from weft._base.state import ambient, on_dtype_change
from weft._base.types import Arg, Kwargs
from weft._dispatch import apply as dispatched
from weft._lazy.aval import Aval, plain_type
from weft._lazy.call import ONE, kinds_of, part_of_draw
from weft._lazy.infer import Call, call_of, signature_of
from weft._lazy.record import record
from weft._lazy.signature import Signature
from weft._lazy.value import Value
from weft._tensor.scalar import number
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor._placements import Placements, Replicate, Shard, in_order, split_order, without_stride
from weft.distributed.tensor._propagate import Operand, Rule, Strategy, cheapest, chosen
from weft.distributed.tensor._redistribute import redistributed
from weft.distributed.tensor._register import stated_strategies
from weft.distributed.tensor._sharding import (
    Sharding,
    labelled,
    local_part,
    set_operations,
    sharding_of,
    type_of,
    type_text,
    whole_type,
)
from weft.distributed.tensor._split_classes import over_split_classes
from weft.distributed.tensor._split_rows import over_split_rows
from weft.errors import DistError
from weft.ops._dims import Factors, Sizes, pointwise, reduces
from weft.ops._kinds import TENSOR_KINDS, Kind
from weft.ops._table import TABLE, Arithmetic, OpDef

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """How a call runs on values of given types.

    inputs      for each input its sharding, or None for what is no part of a tensor
    spread      for each input, the mesh dims along which its gradients are added up
    summed      the inputs for which there are such dims
    drawn_from  where random numbers are drawn in parts, an input more: the position of this process's first one
    signature   the call on the parts, with sharded results
    is_local    whether all inputs are where they are needed
    has_grads   whether it is one for inputs with gradients, too
    """

    inputs: tuple[Sharding | None, ...]
    spread: tuple[tuple[int, ...], ...]
    summed: tuple[int, ...]
    drawn_from: int | None
    signature: Signature
    is_local: bool
    has_grads: bool

    def text(self, call: Call, avals: Sequence[Aval]) -> str:
        """The call, how its inputs are moved, and its results."""
        inputs = [
            type_text(aval) if to is None or to is aval.owner else f"{type_text(aval)} moved to {to}"
            for aval, to in zip(avals, self.inputs, strict=True)
        ]
        results = [type_text(output.aval) for output in self.signature.outputs[: self.signature.main]]
        return f"{call.op.name}: {', '.join(inputs)} -> {', '.join(results)}"

    def sends_nothing(self, inputs: Sequence[Value], grad: bool) -> bool:
        """Whether nothing is sent for these inputs, now or for their gradients."""
        return self.is_local and not (grad and any(inputs[at].role is not None for at in self.summed))

    def recorded(self, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
        """Record the call on inputs that lie as planned; returns the values of its outputs."""
        place = () if self.drawn_from is None else (number(self.drawn_from),)
        return record(self.signature, (*inputs, *place), ambient())


# no cell: a cache, keyed by all that its entries depend on; another default type clears it
_plans: dict[tuple[Call, tuple[Aval, ...], bool], Plan] = {}
_MOST_PLANS = 65_536
on_dtype_change(_plans.clear)  # the types of results depend on it


def apply(call: Call, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
    """Record a call on inputs of which some are sharded, after moving what is not where it is needed."""
    state = ambient()
    # With gradients, pending maxima or products are no choice, so there may be two plans for the same types.
    grad = state.grad and any(x.role is not None for x in inputs)
    # What sends nothing and yet has no signature of its own (`_keep`): rows that draw, or whose gradients are sent.
    plan = _plans.get((call, tuple([x.aval for x in inputs]), grad))
    if plan is not None and plan.sends_nothing(inputs, grad):
        return plan.recorded(inputs)
    if (results := over_split_classes(call, inputs) or over_split_rows(call, inputs)) is not None:
        return results
    # Parts have different numbers of elements that count (`ignore_index`, weights), so means of parts have no mean.
    if (divisor := _divisor(call)) is not None:
        return _mean(call, divisor, inputs)
    # A learning rate or a norm that came out of distributed tensors may scale plain ones; the result is plain.
    if _only_scalars_are_sharded(inputs):
        return dispatched(call, tuple([_plain_scalar(x) for x in inputs]))
    # Replicating changes types, so the plan is looked up once more.
    inputs = _with_replicated(inputs)
    avals = tuple([x.aval for x in inputs])
    plan = _plans.get((call, avals, grad))
    if plan is None:
        plan = _planned(call, avals, grad)
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("plan of %s", plan.text(call, avals))
        _keep(call, avals, grad, plan)
    values = [
        x if wanted is None else redistributed(x, wanted, spread if grad else ())
        for x, wanted, spread in zip(inputs, plan.inputs, plan.spread, strict=True)
    ]
    return plan.recorded(tuple(values))


def _keep(call: Call, avals: tuple[Aval, ...], grad: bool, plan: Plan) -> None:
    """Keep a plan for the next such call. One that never sends anything is a signature like any other."""
    if len(_plans) >= _MOST_PLANS:  # programs whose shapes never repeat would fill the memory
        _plans.clear()
    _plans[call, avals, grad] = plan
    # Then the fast path finds it, and does not come here: such a call costs what one on plain tensors does.
    if plan.is_local and plan.has_grads and not plan.summed and plan.drawn_from is None:
        call.signatures[avals] = plan.signature


set_operations(apply, redistributed)


def _by_name(call: Call) -> Kwargs:
    return dict(zip([p.name for p in call.op.params], call.static, strict=True))


def _divisor(call: Call) -> OpDef | None:
    """The row of a mean's divisor, where parts may have different ones."""
    partial = call.op.shards.partial
    reduction = "" if isinstance(partial, str) else partial(_by_name(call))
    return None if isinstance(reduction, str) else reduction


def _mean(call: Call, divisor: OpDef, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
    """A mean as the sum over all parts, by the sum of their divisors."""
    static = _by_name(call)
    summed = static | {"reduction": "sum"} | {name: None for name in ("size_average", "reduce") if name in static}
    # Both sums may wait for the other ranks: then numbers are sent, and not elements.
    total, *_ = dispatched(call_of(call.op, tuple(summed.values())), inputs)
    count, *_ = dispatched(call_of(divisor, call.static), inputs)
    return dispatched(call_of(TABLE["true_divide"], (ONE, ONE)), (total, count))


def _only_scalars_are_sharded(inputs: Sequence[Value]) -> bool:
    """Whether plain tensors meet distributed ones without dims, or those of several meshes meet each other."""
    sharded = [x for x in inputs if x.aval.owner is not None]
    if any(x.aval.size for x in sharded):
        return False
    # Those of one mesh, beside nothing but numbers, stay distributed.
    meshes = {x.aval.owner.mesh for x in sharded if isinstance(x.aval.owner, Sharding)}
    return len(meshes) > 1 or not all(map(_is_single, inputs))


def _plain_scalar(value: Value) -> Value:
    """A distributed tensor without dims as a plain one, for a call with plain tensors."""
    sharding = value.aval.owner
    return local_part(redistributed(value, sharding.replicated())) if isinstance(sharding, Sharding) else value


_replicates_implicitly = LocalCell("whether plain tensors stand for replicated ones", False)


@contextmanager
def implicit_replication() -> Generator[None]:
    """Within the block, a plain tensor that meets distributed ones stands for a replicated one."""
    with _replicates_implicitly.within(True):
        yield


def _is_single(value: Value) -> bool:
    """Whether a tensor has one element."""
    return prod(value.aval.size) == 1


def _with_replicated(inputs: tuple[Value, ...]) -> tuple[Value, ...]:
    """The inputs, in which plain tensors of one element are replicated; in `implicit_replication`, all plain ones."""
    every = _replicates_implicitly.get()
    # One element is taken to be the same on all processes, as a learning rate is; of more, that would be a guess.
    plain = [x.aval.owner is None and not x.aval.weak and (every or _is_single(x)) for x in inputs]
    if not any(plain):
        return inputs
    if not every and any(x.aval.shape for x, is_plain in zip(inputs, plain, strict=True) if is_plain):
        warn_user(
            "Found a non-scalar tensor with numel=1 and ndim!=0, we are implicitly creating a replicated DTensor for "
            "it. However, please consider changing it to a scalar tensor or explicitly create a DTensor under "
            "distributed environment."
        )
    mesh = next(x.aval.owner.mesh for x in inputs if isinstance(x.aval.owner, Sharding))
    placements = (Replicate(),) * mesh.ndim
    return tuple(
        [
            labelled(x, sharding_of(mesh, placements, x.aval.size)) if is_plain else x
            for x, is_plain in zip(inputs, plain, strict=True)
        ]
    )


@dataclass(frozen=True)
class WholeCall:
    """A call on the whole tensors of which values are parts, as its row describes it.

    call        the call, with its arguments made normal
    types       of the results
    tensors     the positions of the inputs that are tensors
    """

    call: Call
    static: Kwargs
    types: tuple[Aval, ...]
    tensors: tuple[int, ...]
    operands: list[Operand]
    rule: Rule

    @property
    def sizes(self) -> list[Sizes]:
        """The sizes of the results."""
        return [aval.shape for aval in self.types]


def whole_call(call: Call, avals: Sequence[Aval]) -> WholeCall:
    """What a call is on whole tensors. Raises what it would raise there."""
    # Nothing is computed, but whatever is wrong with the call is said of whole tensors, as it would be without a mesh.
    signature = signature_of(call, tuple([whole_type(aval) for aval in avals]))
    assert isinstance(signature.call, Call), "it is a call"
    static = _by_name(signature.call)
    types = tuple([output.aval for output in signature.outputs[: signature.main]])
    tensors = tuple([at for at, kind in enumerate(kinds_of(call)) if kind in TENSOR_KINDS])
    operands = [_operand(avals[at]) for at in tensors]
    factors = _factors(call, [o.shape for o in operands], static, [aval.shape for aval in types])
    return WholeCall(signature.call, static, types, tensors, operands, _rule(call.op, factors, static))


def _planned(call: Call, avals: tuple[Aval, ...], grad: bool) -> Plan:
    whole = whole_call(call, avals)
    mesh = _common_mesh(call, avals, mixes=whole.rule.factors.separate)
    stated = stated_strategies(call.op, whole.static, [o.shape for o in whole.operands], len(whole.types))
    order = max((split_order(_placements(aval, mesh)) for aval in avals), default=())  # the first one, unless strided
    # Mesh dims choose one after another: all at once, k strategies over n dims would be k^n combinations. What a dim
    # has split, the next one can only split further, if the parts stay equal.
    strategy_of: dict[int, Strategy] = {}
    parts_of: dict[object, int] = {}  # how many parts of each letter there are
    for mesh_dim in order:
        count = mesh.shape[mesh_dim]
        now = [without_stride(_placements(avals[at], mesh)[mesh_dim]) for at in whole.tensors]
        if stated is None:
            strategy = chosen(whole.rule, whole.operands, whole.sizes, now, count, parts_of, grad=grad)
        else:
            strategy = cheapest(stated, now, whole.operands, count, grad=grad)
        strategy_of[mesh_dim] = strategy
        parts_of |= {letter: parts_of.get(letter, 1) * count for letter in strategy.split}
    strategies = [strategy_of[mesh_dim] for mesh_dim in range(mesh.ndim)]
    wanted: list[Sharding | None] = [None] * len(avals)
    spread: list[tuple[int, ...]] = [()] * len(avals)
    for at, position in enumerate(whole.tensors):
        if avals[position].owner is None and any(s.ins[at] != Replicate() for s in strategies):
            raise _mixed(call, avals[position])
        if avals[position].owner is not None:
            placements = in_order([s.ins[at] for s in strategies], order, mesh.shape)
            wanted[position] = sharding_of(mesh, placements, avals[position].size)
            spread[position] = tuple(dim for dim, s in enumerate(strategies) if at in s.spread)
    results = [
        sharding_of(mesh, in_order([s.outs[at] for s in strategies], order, mesh.shape), size)
        for at, size in enumerate(whole.sizes)
    ]
    parts = [aval if to is None else plain_type(type_of(aval, to)) for aval, to in zip(avals, wanted, strict=True)]
    # Numbers that one process would draw are drawn in parts, each at its position of the whole: results do not depend
    # on how many processes there are.
    drawn = _drawn_in_parts(whole, results)
    if drawn is not None:
        parts.append(number(0).aval)
    types = [type_of(aval, to) for aval, to in zip(whole.types, results, strict=True)]
    if mesh.coordinate is None:  # a process outside of the mesh goes on with empty parts, as the program is the same
        local = _on_no_parts(call, parts, types)
    else:
        local = signature_of(_on_parts(whole.call, whole.static, results, drawn), tuple(parts))
    # What `_propagate` says, and what the row makes of parts, are two sources of the shapes. They have to agree.
    for output, aval in zip(local.outputs, types, strict=False):
        assert output.aval.shape == aval.shape, f"{call} on {avals}: parts of {aval} are {output.aval}"
    is_local = all(aval.owner is to for aval, to in zip(avals, wanted, strict=True))
    summed = tuple([at for at, dims in enumerate(spread) if dims])
    has_grads = grad or all(s.is_differentiable for s in strategies)
    first = None if drawn is None else results[0].position_in(drawn)
    return Plan(tuple(wanted), tuple(spread), summed, first, local.with_types(types), is_local, has_grads)


def _on_no_parts(call: Call, parts: Sequence[Aval], types: Sequence[Aval]) -> Signature:
    """A call outside of the mesh: empty parts, whatever the operator would make of inputs without elements."""

    def empty_parts(*_: jax.Array) -> tuple[jax.Array, ...]:
        return tuple([jnp.zeros(aval.shape, aval.dtype.numpy) for aval in types])

    return Signature(call.op.name, empty_parts, tuple(parts), device=types[0].device, rounds=False)


def _drawn_in_parts(whole: WholeCall, results: Sequence[Sharding]) -> Sizes | None:
    """The sizes of the array that a call draws, if processes draw different parts of it."""
    drawn = whole.call.op.shards.drawn
    if drawn is None or not any(isinstance(p, Shard) for p in results[0].placements):
        return None
    return drawn([o.shape for o in whole.operands], whole.static)


def _common_mesh(call: Call, avals: Sequence[Aval], *, mixes: bool) -> DeviceMesh:
    """The mesh of all inputs; `RuntimeError` if there are two meshes or, unless it `mixes`, plain tensors with dims."""
    meshes = {aval.owner.mesh.key: aval.owner.mesh for aval in avals if isinstance(aval.owner, Sharding)}
    mesh, *others = meshes.values()
    if others:
        raise DistError(f"{call.op.name}(): all tensors must be on one mesh, but got {mesh} and {others[0]}")
    for aval, kind in zip(avals, kinds_of(call), strict=True):
        if kind in TENSOR_KINDS and aval.owner is None and not aval.weak and aval.shape and not mixes:
            raise _mixed(call, aval)
    return mesh


def _mixed(call: Call, aval: Aval) -> DistError:
    return DistError(
        f"{call.op.name}() got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before "
        f"calling distributed operators! One is a {aval}; distribute_tensor or DTensor.from_local makes a DTensor of it"
    )


def _operand(aval: Aval) -> Operand:
    shape = tuple(aval.size)
    plain = aval.owner is None
    return Operand(shape, prod(shape) * aval.dtype.itemsize, plain, aval.dtype.is_differentiable)


def _placements(aval: Aval, mesh: DeviceMesh) -> Placements:
    sharding = aval.owner
    return sharding.placements if isinstance(sharding, Sharding) else (Replicate(),) * mesh.ndim


def _factors(call: Call, shapes: list[Sizes], static: Kwargs, outs: Sequence[Sizes]) -> Factors:
    """The letters of a call's dims. Without a rule, or where only all numbers can be drawn, no dim may be split."""
    rule = call.op.dims
    if rule is not None and (call.op.shards.drawn is not None or all(p.kind is not Kind.KEY for p in call.op.params)):
        factors = rule(shapes, static)
        if [len(dims) for dims in factors.outs] == [len(out) for out in outs]:
            return factors
    if rule is None:
        _say_once(call.op.name)
    # Letters of its own for each dim, all of which have to be whole: nothing follows from anything.
    letters = [tuple((at, dim) for dim in range(len(shape))) for at, shape in enumerate([*shapes, *outs])]
    whole = frozenset(letter for dims in letters for letter in dims)
    return Factors(tuple(letters[: len(shapes)]), tuple(letters[len(shapes) :]), whole)


def _rule(op: OpDef, factors: Factors, static: Kwargs) -> Rule:
    """What a row says of a call. Bodies that do more than move, add or map elements may refuse empty parts."""
    partial = op.shards.partial if isinstance(op.shards.partial, str) else op.shards.partial(static)
    assert isinstance(partial, str), "means with divisors are computed as sums"
    adds = op.dims is reduces and partial == "sum"
    by_element = adds or op.dims is pointwise or op.types.arithmetic is Arithmetic.NONE or factors.separate
    # Positions count the tensors that are given: a bias that is None takes none.
    names = [p.name for p in op.params if p.kind in TENSOR_KINDS and static[p.name] is not None]
    addend = names.index(op.shards.addend) if op.shards.addend in names else None
    return Rule(factors, partial, op.shards.linear, by_element, addend)


@cache
def _say_once(name: str) -> None:
    _log.warning("%s has no rule for shardings; its inputs are replicated first", name)


def _on_parts(call: Call, static: Kwargs, results: Sequence[Sharding], drawn: Sizes | None) -> Call:
    """A call whose sizes of its result are those of this process's part, and that draws a part of an array."""
    entries: list[Arg] = list(call.static)
    for at, param in enumerate(call.op.params):
        if param.text == "OutShape" and entries[at] is not None:
            shape = results[0].local_shape
            start = static["dim"] if len(entries[at]) < len(shape) else 0
            entries[at] = shape[start : start + len(entries[at])]
        if param.kind is Kind.KEY and drawn is not None:
            entries[at] = part_of_draw(drawn)
    return call_of(call.op, tuple(entries), call.device)
