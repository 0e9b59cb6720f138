"""Two runs of a model beside each other: the results of all modules, listed by how far they depart."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import numpy as np

from weft import random
from weft._base.device import META
from weft._base.state import using
from weft._base.types import AnyCallable, Args, Kwargs, PyTree, Result
from weft._tensor.compile.compiled import compile
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ValueRangeError
from weft.nn._module import Module
from weft.nn._optimized import OptimizedModule
from weft.utils._pytree.functions import tree_leaves, tree_map

Around = Callable[[], AbstractContextManager[Any]] | None
_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Layer:
    """How the results of one module differ between two runs.

    name      its path in the model, with `#2` and so on for further calls; "" for the model itself
    kind      the names of its classes in both models, one if they agree; with a plus, those of layers folded into it
    size      of its result, or of its first result
    absolute  the largest difference of two elements
    relative  the root of the mean square difference, relative to that of the first run's elements
    sqnr      the same in decibels, the signal-to-quantization-noise ratio: `-20 log10(relative)`; infinite if equal
    departs   whether `relative` exceeds the tolerance
    reason    why nothing can be compared, such as other sizes; or "". Numbers are NaN where one has a layer in it more
    """

    name: str
    kind: str
    size: tuple[int, ...]
    absolute: float
    relative: float
    sqnr: float
    departs: bool
    reason: str = ""


@dataclass(frozen=True)
class Comparison:
    """What `compare` found. It prints as a table, the largest relative error first.

    layers     one entry for each module that both models called, in the order in which they finished
    tolerance  the relative error from which on a layer counts as departed
    only_a     calls of modules of which the second model has none, and `only_b` the reverse
    """

    layers: list[Layer]
    tolerance: float
    only_a: list[str] = field(default_factory=list)
    only_b: list[str] = field(default_factory=list)

    @property
    def first(self) -> Layer | None:
        """The first layer that departs; None if none does."""
        return next((layer for layer in self.layers if layer.departs), None)

    def by_error(self) -> list[Layer]:
        """The layers, the largest relative error first."""
        return sorted(self.layers, key=lambda layer: -1 if math.isnan(layer.relative) else layer.relative, reverse=True)

    def __str__(self) -> str:
        rows = [("layer", "module", "size", "absolute", "relative", "SQNR", "")]
        first = self.first
        rows += [_row(layer, layer is first) for layer in self.by_error()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(_aligned(row, widths)).rstrip() for row in rows]
        lines.insert(1, "-" * max(map(len, lines)))
        return "\n".join([*lines, *self._notes()])

    __repr__ = __str__

    def _notes(self) -> Iterator[str]:
        first = self.first
        if first is None:
            yield f"no layer departs by more than {self.tolerance:g}"
        else:
            yield f"first to depart by more than {self.tolerance:g}: {_called(first)}"
        for what, names in (("first", self.only_a), ("second", self.only_b)):
            if names:
                some = ", ".join(name or "the model" for name in names[:8])
                yield f"only in the {what} run: {some}{', …' if len(names) > 8 else ''}"


def _called(layer: Layer) -> str:
    return f"{layer.name} ({layer.kind})" if layer.name else f"the model ({layer.kind})"


def _row(layer: Layer, is_first: bool) -> tuple[str, ...]:
    name = layer.name or "(model)"
    size = "x".join(map(str, layer.size)) or "1"
    remark = "<- first" if is_first else ""
    if layer.reason:
        return name, layer.kind, size, "-", "-", "-", f"{remark} {layer.reason}".strip()
    decibels = "equal" if layer.sqnr == math.inf else f"{layer.sqnr:.1f} dB"
    return name, layer.kind, size, f"{layer.absolute:.3g}", f"{layer.relative:.3g}", decibels, remark


def _aligned(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    for at, (text, width) in enumerate(zip(row, widths, strict=True)):
        yield text.rjust(width) if 3 <= at <= 5 else text.ljust(width)


# --- the runs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Call:
    """A call of a module: its path and class, tensors of its result, and what it takes and returns if one tensor."""

    path: str
    kind: str
    tensors: list[Tensor]
    source: Tensor | None
    result: Tensor | None


def _called_modules(model: Module, args: Args, kwargs: Kwargs) -> list[_Call]:
    """Run a model; all calls of modules, in the order in which they end."""
    calls: list[_Call] = []

    def recorder(path: str) -> AnyCallable:
        def record(module: Module, inputs: PyTree, output: Result) -> None:
            tensors = [x.detach() for x in tree_leaves(output) if isinstance(x, Tensor)]
            source = inputs[0] if len(inputs) == 1 and isinstance(inputs[0], Tensor) else None
            result = output if isinstance(output, Tensor) else None
            calls.append(_Call(path, type(module).__name__, tensors, source, result))

        return record

    handles = [module.register_forward_hook(recorder(path)) for path, module in model.named_modules()]
    try:
        model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _run(model: Module, inputs: PyTree, around: Around) -> list[_Call]:
    """The same, on the device of the model, within a context, and compiled if the model is."""
    args, kwargs = _arguments(inputs)
    device = next((x.device for x in (*model.parameters(), *model.buffers())), None)
    if device is not None and device is not META:
        args, kwargs = (tree_map(lambda x: x.to(device) if isinstance(x, Tensor) else x, y) for y in (args, kwargs))
    with using(grad=False), (around or nullcontext)():
        if not isinstance(model, OptimizedModule):
            return _called_modules(model, args, kwargs)
        original = model._orig_mod
        run: Callable[..., Any] = compile(lambda *a, **k: _called_modules(original, a, k))
        return run(*args, **kwargs)


def _arguments(inputs: PyTree) -> tuple[Args, Kwargs]:
    if isinstance(inputs, dict):
        return (), inputs
    return (tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)), {}


# --- layers that are one in the other model -----------------------------------------------------------------------

_ACTIVATION = re.compile(r"(LeakyReLU|ReLU|Tanh)(?:\dd)?$")


def _activation(kind: str) -> str:
    """The last activation function in a layer, as names of fused layers say it (`ConvReLU2d`), or ""."""
    return next((match[1] for part in reversed(kind.split("+")) if (match := _ACTIVATION.search(part))), "")


def _whole(calls: list[_Call], others: list[_Call]) -> dict[str, _Call]:
    """The calls of one run by name, as the other run has them: what that has folded into a layer is one with it.

    A call is folded into the one whose result it takes if the other model calls neither it nor a module that has it,
    or has an Identity there, or if the other one's layer ends in such an activation function. The result is that of
    the last one.
    """
    kinds = {call.path: call.kind for call in reversed(others)}
    whole: dict[str, _Call] = {}
    folded: set[int] = set()
    count: Counter[str] = Counter()
    for at, call in enumerate(calls):
        other = kinds.get(call.path)
        if at in folded or (call.kind == "Identity" and other not in (None, "Identity")):
            continue
        rest = enumerate(calls[at + 1 :], at + 1) if other is not None else ()
        # Found by identity of the tensor that is passed on, since names say nothing of what follows what.
        for later, then in rest:
            if then.source is None or then.source is not call.result:
                continue
            is_part = any(then.path.startswith(f"{path}.") for path in kinds if path)
            is_gone = kinds.get(then.path, "" if is_part else "Identity") == "Identity" != then.kind
            if not is_gone and (then.kind == other or then.kind != _activation(other or "")):
                break
            folded.add(later)
            call = replace(then, path=call.path, kind=f"{call.kind}+{then.kind}")
        count[call.path] += 1
        whole[call.path if count[call.path] == 1 else f"{call.path}#{count[call.path]}"] = call
    return whole


# --- the differences ------------------------------------------------------------------------------------------------


def _numbers(x: Tensor) -> _Array:
    """The elements as float64; complex ones as pairs."""
    plain = x.dequantize() if x.is_quantized else x
    plain = plain.to_dense() if plain.is_sparse else plain
    array = np.asarray(plain.cpu()._host())
    if array.dtype.kind == "c":
        return np.stack([np.real(array), np.imag(array)]).astype(np.float64)
    return array.astype(np.float64)


def _compared(name: str, one: _Call, other: _Call, tolerance: float) -> Layer:
    a, b, kind = one.tensors, other.tensors, one.kind
    size = tuple(a[0].shape) if a else ()
    if one.kind != other.kind:
        kind = f"{one.kind} / {other.kind}"
        words = [_activation(call.kind) or "no activation" for call in (one, other)]
        if words[0] != words[1]:
            reason = f"kinds differ: the first ends in {words[0]}, the second in {words[1]}"
            return Layer(name, kind, size, math.nan, math.nan, math.nan, False, reason)
    sizes = [[tuple(x.shape) for x in tensors] for tensors in (a, b)]
    if sizes[0] != sizes[1]:
        reason = f"sizes differ: {sizes[0]} and {sizes[1]}"
        return Layer(name, kind, size, math.inf, math.inf, -math.inf, True, reason)
    signal = noise = worst = 0.0
    for x, y in zip(map(_numbers, a), map(_numbers, b), strict=True):
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        with np.errstate(invalid="ignore", over="ignore"):
            # Before the subtraction counts: infinities that agree give NaN, and are no difference.
            difference = np.where(same, 0.0, np.abs(x - y))
        difference = np.where(np.isnan(difference), np.inf, difference)
        signal += float((np.where(np.isfinite(x), x, 0.0) ** 2).sum())
        noise += float((difference**2).sum())
        worst = max(worst, float(difference.max(initial=0.0)))
    relative = 0.0 if not noise else math.sqrt(noise / signal) if signal else math.inf
    sqnr = math.inf if not relative else -math.inf if relative == math.inf else -20 * math.log10(relative)
    return Layer(name, kind, size, worst, relative, sqnr, relative > tolerance)


def compare(
    model_a: Module,
    model_b: Module,
    inputs: PyTree,
    *,
    tolerance: float = 1e-3,
    around_a: Around = None,
    around_b: Around = None,
) -> Comparison:
    """Run two models on the same inputs, and list how far the results of their modules depart from each other.

    Modules are matched by their paths, so the models are forms of one model: float and quantized, on the CPU and on an
    accelerator, plain and compiled (`weft.compile(model)`). A fused layer of one model is compared with the last of the
    layers that are folded into it. Both may also be one model, run in different contexts:
    `around_b=lambda: weft.autocast("cpu", weft.bfloat16)`.

    inputs     the arguments of a call: one tensor, a tuple of arguments, or a dict of named ones; they are moved to the
               device of each model
    tolerance  the relative error of a layer from which on it counts as departed

    Both runs are without gradients, and draw the same random numbers. `TypeError` for what is no module; an error that
    a model raises leaves no hooks behind. In training mode, buffers change as in any call.
    """
    for name, model in (("model_a", model_a), ("model_b", model_b)):
        if not isinstance(model, Module):
            raise ArgumentError(f"compare: {name} must be a Module, but got {type(model).__name__}")
    if isinstance(tolerance, bool) or not isinstance(tolerance, Real):
        raise ArgumentError(f"compare: tolerance must be a number, but got {tolerance!r}")
    if not tolerance >= 0:
        raise ValueRangeError(f"compare: tolerance must be 0 or more, but got {tolerance}")
    state = random.get_rng_state()
    first = _run(model_a, inputs, around_a)
    random.set_rng_state(state)
    second = _run(model_b, inputs, around_b)
    calls_a, calls_b = _whole(first, second), _whole(second, first)
    pairs = [(name, call, calls_b[name]) for name, call in calls_a.items() if name in calls_b]
    layers = [_compared(name, a, b, tolerance) for name, a, b in pairs if a.tensors or b.tensors]
    return Comparison(layers, tolerance, _only_in(calls_a, calls_b), _only_in(calls_b, calls_a))


def _only_in(calls: dict[str, _Call], others: dict[str, _Call]) -> list[str]:
    return [name for name in calls if name not in others]
