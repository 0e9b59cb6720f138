"""The derivative of an operator, as another operator.

The derivative of a signature is a signature, so it is recorded, compiled and differentiated like any other. It takes
only those inputs, outputs and cotangents that it reads; only these must be kept for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from operator import itemgetter

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr

from weft._base.timeline import Phase, spanned
from weft._lazy.call import kinds_of
from weft._lazy.explain import inferring
from weft._lazy.general import Derivatives, General, with_letters
from weft._lazy.interpreted import COMPILED_AT_ONCE
from weft._lazy.native import native
from weft._lazy.plan import register_reads
from weft._lazy.signature import Output, Requirement, Signature, structs_of
from weft._lazy.trace import restricted, traced, with_unread
from weft._lazy.value import Link, Value
from weft.errors import GradientError, WeftError
from weft.ops._jax import vjp
from weft.ops._kinds import Kind

Arrays = tuple[jax.Array, ...]
Pick = Callable[[Sequence[Link]], tuple[Link, ...]]


@dataclass(frozen=True)
class Derivative:
    """Gradients of some inputs of a signature, given cotangents of some of its outputs.

    signature  computes those gradients that need computing, from the operands in `inputs`, `outputs`, `cotangents`
    inputs, outputs, cotangents   positions of the operands that it reads, among all of that kind
    sources    for each wanted input: (True, an output of `signature`), (False, a cotangent), or None
    pick       takes the operands from (*inputs, *outputs, *cotangents)
    saves      whether a backward pass frees something that it reads, so that there can be no second one
    """

    signature: Signature | None
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    cotangents: tuple[int, ...]
    sources: tuple[tuple[bool, int] | None, ...]
    pick: Pick = tuple
    saves: bool = False

    @cached_property
    def only(self) -> Output | None:
        """The single output, if exactly one gradient is wanted and must be computed; else None."""
        return self.signature.outputs[0] if self.signature is not None and self.sources == ((True, 0),) else None


def derivative_of(signature: Signature, need: tuple[int, ...], from_outputs: tuple[int, ...]) -> Derivative:
    """The derivative with respect to inputs `need`, from cotangents of main outputs `from_outputs`."""
    key = (need, from_outputs)
    cache = signature.derivatives.cache
    derivative = cache.get(key)
    if derivative is None:
        derivative = cache.setdefault(key, _derive(signature, need, from_outputs))  # as in `signature_of`
        if len(signature.outputs) == 1:
            cache[need] = derivative  # where the engine looks first
    return derivative


if native is not None:
    native.bind(derivative_of=derivative_of)

_FIRST, _SECOND, _BOTH = (0,), (1,), (0, 1)


def on_tape(inputs: Sequence[Value]) -> tuple[int, ...]:
    """Positions of the inputs to which gradients flow."""
    if len(inputs) == 2:  # nearly all that have several
        first, second = inputs
        return (_FIRST if second.role is None else _BOTH) if first.role is not None else _SECOND
    return tuple([i for i, x in enumerate(inputs) if x.role is not None])


def smooth_outputs(signature: Signature) -> tuple[int, ...]:
    """Indices of the main outputs through which gradients flow."""
    return tuple([o.index for o in signature.outputs[: signature.main] if o.taped is not None])


def _name(signature: Signature, *_: object) -> str:
    return f"grad of {signature.name}"


@inferring
@spanned(Phase.INFERENCE, _name)
def _derive(signature: Signature, need: tuple[int, ...], from_outputs: tuple[int, ...]) -> Derivative:
    traced_here = _traced_for_all_sizes(signature, need, from_outputs) or _Gradients(
        signature, structs_of(signature.avals), structs_of([o.aval for o in signature.outputs]), need, from_outputs
    )
    to_compute, passed, trace = traced_here.to_compute, traced_here.passed, traced_here.trace
    n, m, read = len(signature.avals), len(signature.outputs), trace.inputs
    sources: list[tuple[bool, int] | None] = [None] * len(need)
    for at, which in enumerate(traced_here.present):
        sources[which] = (False, passed[at]) if at in passed else (True, to_compute.index(at))
    read_arrays = [i for i in read if i < n + m and i not in _numbers(signature)]
    saves = bool(read_arrays) or (signature.call is not None and signature.call.op.derivative.saves)
    if not to_compute:
        return Derivative(None, (), (), (), tuple(sources), saves=saves)
    avals = [*signature.avals, *(o.aval for o in signature.outputs), *(signature.outputs[i].aval for i in from_outputs)]
    general = None
    if traced_here.subject is not signature:
        assert signature.general is not None, "that is where it comes from"
        sizes = signature.general[1]
        general, trace = (traced_here.general, sizes), trace.with_sizes(sizes)
    derived = Signature(
        f"grad of {signature.name}",
        traced_here.function(signature, structs_of(avals)),
        tuple(avals[i] for i in read),
        device=signature.outputs[0].aval.device,
        rounds=signature.rounds,
        trace=trace,
        general=general,
        native=_native(signature, traced_here, structs_of(avals)),
    )
    derived.require(None if signature.requirement is None else Requirement(None))
    if signature.execution.costs is COMPILED_AT_ONCE:
        derived.execution.costs = COMPILED_AT_ONCE
    return Derivative(
        derived,
        tuple(i for i in read if i < n),
        tuple(i - n for i in read if n <= i < n + m),
        tuple(i - n - m for i in read if i >= n + m),
        tuple(sources),
        _picker(read),
        saves,
    )


def _native(
    signature: Signature, gradients: _Gradients, structs: Sequence[jax.ShapeDtypeStruct]
) -> Callable[..., Arrays] | None:
    """What compiled programs run for a derivative: the same gradients, by the signature's native body; or None."""
    if signature.derivatives.native is None:
        return None
    by_native = copy(signature)
    by_native.derivatives = Derivatives(signature.derivatives.native)
    return gradients.function(by_native, structs)


def _traced_for_all_sizes(
    signature: Signature, need: tuple[int, ...], from_outputs: tuple[int, ...]
) -> _Gradients | None:
    """The gradients, traced with symbolic sizes; None if that is impossible."""
    if signature.general is None:
        return None
    general = signature.general[0]
    key = (need, from_outputs)
    cache = general.derivatives.cache
    if key not in cache:
        gradients = with_letters(partial(_Gradients, general, general.structs, general.results(), need, from_outputs))
        cache.setdefault(key, gradients)
    return cache[key]


class _Gradients:
    """The traced gradients of a signature, or of the general trace that serves all sizes.

    subject     the signature or the general trace
    present     indices of the wanted gradients that exist
    passed      those of them that equal a cotangent (gradient -> cotangent)
    to_compute  all others of them
    trace       computes these from (inputs, outputs, cotangents)
    """

    def __init__(
        self,
        subject: Signature | General,
        inputs: Sequence[jax.ShapeDtypeStruct],
        outputs: Sequence[jax.ShapeDtypeStruct],
        need: tuple[int, ...],
        from_outputs: tuple[int, ...],
    ) -> None:
        self.subject = subject
        self._need, self._from_outputs = need, from_outputs
        self._counts = len(inputs), len(outputs)
        self.present: list[int] = []
        structs = [*inputs, *outputs, *(outputs[i] for i in from_outputs)]
        try:
            trace = traced(lambda *arrays: self._all(subject, arrays), structs)
        except WeftError as error:
            vars(error).pop("__notes__", None)  # jax's notes about its own frames
            raise
        except NotImplementedError as error:  # jax's, for a function that has no rule
            name = subject.name if isinstance(subject, Signature) else "an operator"
            raise GradientError(f"the derivative of {name} is not implemented: {error}") from None
        self.passed, self.to_compute = _sort_results(trace.closed.jaxpr, len(inputs) + len(outputs))
        self.trace = restricted(trace, self.to_compute)
        self._structs = structs

    @cached_property
    def general(self) -> General:
        """The derivative as a general trace, for all sizes."""
        read = [self._structs[at] for at in self.trace.inputs]
        return General(self.function(self.subject, self._structs), None, len(self.to_compute), read, self.trace)

    def _all(self, subject: Signature | General, arrays: Sequence[jax.Array]) -> list[jax.Array]:
        n, m = self._counts
        grads = _gradients(subject, self._need, self._from_outputs, arrays[:n], arrays[n : n + m], arrays[n + m :])
        self.present[:] = [i for i, g in enumerate(grads) if g is not None]
        return [g for g in grads if g is not None]

    def function(self, subject: Signature | General, structs: Sequence[jax.ShapeDtypeStruct]) -> Callable[..., Arrays]:
        """A function that computes the gradients in `to_compute` from the operands that they read."""

        def fn(*arrays: jax.Array) -> Arrays:
            results = self._all(subject, with_unread(arrays, structs, self.trace.inputs))
            return tuple(results[at] for at in self.to_compute)

        return fn


def _numbers(signature: Signature) -> set[int]:
    """Positions of the inputs that are numbers and not arrays, and so are never freed by a backward pass.

    PyTorch makes an array of a number only if it is one of two operands.
    """
    kinds = kinds_of(signature.call) if signature.call is not None else []
    return {
        i
        for i, kind in enumerate(kinds)
        if signature.avals[i].weak and (kind is Kind.SCALAR or (kind is Kind.OPERAND and i > 1))
    }


def _picker(positions: Sequence[int]) -> Pick:
    if not positions:
        return lambda _: ()
    if len(positions) == 1:
        only = positions[0]
        return lambda operands: (operands[only],)
    return itemgetter(*positions)


def _gradients(
    signature: Signature | General,
    need: tuple[int, ...],
    from_outputs: tuple[int, ...],
    inputs: Sequence[jax.Array],
    outputs: Sequence[jax.Array],
    cotangents: Sequence[jax.Array],
) -> Sequence[jax.Array | None]:
    """A gradient or None for each input in `need`, in PyTorch's convention: conjugates of jax's for complex inputs."""
    real = not any(jnp.issubdtype(a.dtype, jnp.complexfloating) for a in (*inputs, *outputs))
    grads = signature.derivatives.grads
    if grads is not None and real and all(i < signature.main for i in from_outputs):
        by_output = dict(zip(from_outputs, cotangents, strict=True))
        full = [by_output.get(i) for i in range(signature.main)]
        filled = tuple(jnp.zeros_like(outputs[i]) if g is None else g for i, g in enumerate(full))
        gradients = grads(inputs, outputs, filled)
        return [gradients[i] for i in need]

    def smooth(*wanted: jax.Array) -> list[jax.Array]:
        full = list(inputs)
        for i, x in zip(need, wanted, strict=True):
            full[i] = x
        results = signature.fn(*full)
        return [results[i] for i in from_outputs]

    _, pull = vjp(smooth, *(inputs[i] for i in need))
    return [g.conj() if jnp.iscomplexobj(g) else g for g in pull([jnp.conj(g) for g in cotangents])]


def _sort_results(jaxpr: Jaxpr, first: int) -> tuple[dict[int, int], list[int]]:
    """The results that equal a cotangent (result -> cotangent), and the positions of all others."""
    cotangents = {id(var): at for at, var in enumerate(jaxpr.invars[first:])}
    passed = {at: cotangents[id(var)] for at, var in enumerate(jaxpr.outvars) if id(var) in cotangents}
    return passed, [at for at in range(len(jaxpr.outvars)) if at not in passed]


def _reads(value: Value) -> tuple[Sequence[int], Sequence[int]]:
    """Positions of the inputs and outputs that the derivative of a value's application will read."""
    origin = value.origin
    assert origin is not None, "only applications have derivatives"
    need = tuple(i for i, x in enumerate(value.inputs) if x.role is not None)
    try:
        derivative = derivative_of(origin.signature, need, (origin.index,))
    except GradientError:  # no derivative: a backward pass raises
        return (), ()
    return derivative.inputs, derivative.outputs


register_reads(_reads)
