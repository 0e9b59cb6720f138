"""Tracing: a function of tensors as a pure function of arrays.

Under a jax transformation, arrays are abstract. The function runs on tensors that stand for them, and is recorded as
usual; the record is then evaluated on the arrays themselves, with the derivatives of the operator table.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from weft._base.capture import Capture
from weft._base.dtype import from_numpy
from weft._base.site import user_site
from weft._base.state import Pending, ambient, using
from weft._base.types import Arg
from weft._dispatch import apply
from weft._lazy.aval import aval_of
from weft._lazy.call import ONE
from weft._lazy.infer import call_of
from weft._lazy.outline import outline
from weft._lazy.reading import array_of
from weft._lazy.role import Leaf
from weft._lazy.runtime import default_jax_device, named
from weft._lazy.value import Value
from weft._tensor.generator import Generator
from weft._tensor.scalar import number
from weft._tensor.tensor import Tensor, wrap
from weft._tensor.view import set_value
from weft.errors import CompileError, NeedsValueError
from weft.ops._table import TABLE

_ADVICE = "use operators such as where() in place of Python's control flow, or call it outside of the transformation"


class TensorTrace(Capture):
    """The ambient `capture` while a function is traced: notes what it uses and changes besides its arguments."""

    def __init__(self, name: str, key: Arg) -> None:
        self.name = name
        self.key = key
        self.drawn: dict[Value, Callable[[], Any]] = {}
        self._written: dict[int, tuple[weakref.ref[Tensor], Value]] = {}
        self._leaves: dict[int, weakref.ref[Tensor]] = {}  # leaves that were read, by the identity of their tapes
        self._grads: dict[int, tuple[Leaf, Any]] = {}

    def read(self, tensor: Tensor, value: Value) -> None:
        """An operator reads a tensor."""
        if isinstance(value.role, Leaf):
            self._leaves.setdefault(id(value.role), weakref.ref(tensor))

    def wrote(self, tensor: Tensor, old: Value) -> None:
        """A tensor got a new value in place."""
        self._written.setdefault(id(tensor), (weakref.ref(tensor), old))

    def writes_grad(self, role: Leaf, *, reads: bool) -> None:
        """A leaf's `.grad` is about to change."""
        del reads
        self._grads.setdefault(id(role), (role, role.grad))

    def draws(self, generator: Generator) -> tuple[Value, Value]:
        """The (seed, offset) of a random operator, from the key of the call; `CompileError` if there is none."""
        del generator
        if self.key is None:
            raise CompileError(
                f"{self.name}: it draws random numbers at {user_site()}, and under a jax transformation every run "
                "would draw the same; use to_jax(fn, random=True) and pass a jax.random.key as first argument"
            )
        seed, offset = number(0), number(len(self.drawn) // 2)
        self.drawn[seed] = lambda: jax.random.bits(self.key, dtype=jnp.uint32).astype(jnp.int64)
        self.drawn[offset] = lambda: jnp.asarray(offset.number, jnp.int64)
        return seed, offset

    def user_derivative(self, name: str) -> None:
        """An `autograd.Function` is applied: `CompileError`, as jax would not see its derivative."""
        raise CompileError(
            f"{self.name}: it applies the autograd.Function {name} at {user_site()}, whose derivative jax cannot see; "
            "make an operator of it with weft.library.custom_op and register_autograd"
        )

    def needs_elements(self, value: Value, *, decides: bool = False) -> None:
        """The function reads a value; `decides` if Python's control flow depends on it."""
        del value, decides
        self.needs_value()

    def needs_value(self, what: str = "a tensor's value", advice: str = "") -> None:
        """The function reads a value, or communicates with other processes: `NeedsValueError`."""
        raise NeedsValueError(
            f"{self.name}: it needs {what} at {user_site()}, and under a jax transformation there is none; "
            f"{advice or _ADVICE}"
        )

    def undo(self, mine: Iterable[Tensor]) -> None:
        """Undo the function's writes to tensors from outside and to their gradients; `CompileError` if there were any.

        `mine` are the tensors that stand for the arguments.
        """
        own = set(map(id, mine))
        outside = [(ref(), old) for key, (ref, old) in self._written.items() if key not in own]
        kept = [(tensor, old) for tensor, old in outside if tensor is not None]
        # Undone before the error is raised: the tensors would be left with values of a trace, which nobody can compute.
        for tensor, old in kept:
            set_value(tensor, old)
        changed = [role for role, before in self._grads.values() if role.grad is not before]
        for role, before in self._grads.values():
            role.grad = before
        if kept:
            shape = list(kept[0][0].shape)
            raise CompileError(
                f"{self.name}: it writes to a tensor of shape {shape} that it did not make, such as a module's "
                "buffer; a jax function has no side effects, so return the new value instead (or use model.eval())"
            )
        for role in changed:
            leaf = self._leaves.get(id(role), lambda: None)()
            if leaf is not None and id(leaf) not in own:
                raise CompileError(
                    f"{self.name}: it leaves a gradient in a tensor of shape {list(leaf.shape)} that it did not make; "
                    "use torch.autograd.grad in place of backward()"
                )


_ALIAS = call_of(TABLE["alias"], (ONE,))


def traced(
    function: Callable[[list[Tensor]], Sequence[Tensor]],
    arrays: Sequence[jax.Array],
    name: str,
    *,
    key: Arg = None,
    on_tape: bool = False,
) -> list[jax.Array]:
    """The results of `function` for tensors that stand for `arrays`, as arrays that depend on these.

    With `on_tape` the tensors require gradients, so that the function can stop them, as `detach()` does. `CompileError`
    if it reads values, writes to tensors from outside, or draws random numbers without a `key` (a `jax.random.key`).
    """
    device = named(default_jax_device())
    leaves = [Value(aval_of(tuple(a.shape), from_numpy(a.dtype), device=device), a) for a in arrays]
    for leaf in leaves:
        if on_tape and leaf.aval.dtype.is_differentiable:
            leaf.role = Leaf()
    trace = TensorTrace(name, key)
    region = Pending(sys.maxsize, watched=False)
    with jax.ensure_compile_time_eval():  # what does not depend on the arrays is computed now
        apart = ambient().autocast.apart()
        modes = {"grad": True, "inference": False, "anomaly": False, "autocast": apart, "observers": ()}
        with using(pending=region, capture=trace, **modes):
            tensors = [wrap(apply(_ALIAS, (leaf,))[0]) for leaf in leaves]  # unlike leaves, these can be written to
            wanted = [result._read() for result in function(list(tensors))]
        trace.undo(tensors)
        signature, inputs = outline(wanted, region, name)
        by_leaf = {id(leaf): a for leaf, a in zip(leaves, arrays, strict=True)}
        held = {id(x): array_of(x) for x in inputs if id(x) not in by_leaf and x not in trace.drawn}
    for value, draw in trace.drawn.items():
        by_leaf[id(value)] = draw()
    full = (by_leaf[id(x)] if id(x) in by_leaf else jnp.asarray(held[id(x)], x.aval.dtype.numpy) for x in inputs)
    return list(signature.fn(*full))
