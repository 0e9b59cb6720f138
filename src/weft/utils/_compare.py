"""Two runs of a model beside each other: the results of all modules, listed by how far they depart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np

from weft import random
from weft._base.device import META
from weft._base.state import using
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
    kind      the names of its classes in both models, one if they agree
    size      of its result, or of its first result
    absolute  the largest difference of two elements
    relative  the root of the mean square difference, relative to that of the first run's elements
    sqnr      the same in decibels, the signal-to-quantization-noise ratio: `-20 log10(relative)`; infinite if equal
    departs   whether `relative` exceeds the tolerance
    reason    why nothing can be compared, such as other sizes; or ""
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
        return sorted(self.layers, key=lambda layer: layer.relative, reverse=True)

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


def _called_modules(model: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, str, list[Any]]]:
    """Run a model; for each call of a module, in the order in which they end: path, class, tensors of its result."""
    records: list[tuple[str, str, list[Any]]] = []
    calls: dict[str, int] = {}

    def recorder(path: str) -> Any:
        def record(module: Module, inputs: Any, output: Any) -> None:
            del inputs
            calls[path] = calls.get(path, 0) + 1
            name = path if calls[path] == 1 else f"{path}#{calls[path]}"
            records.append(
                (name, type(module).__name__, [x.detach() for x in tree_leaves(output) if isinstance(x, Tensor)])
            )

        return record

    handles = [module.register_forward_hook(recorder(path)) for path, module in model.named_modules()]
    try:
        model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return records


def _run(model: Module, inputs: Any, around: Around) -> list[tuple[str, str, list[Any]]]:
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


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, dict):
        return (), inputs
    return (tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)), {}


# --- the differences ------------------------------------------------------------------------------------------------


def _numbers(x: Tensor) -> _Array:
    """The elements as float64; complex ones as pairs."""
    plain = x.dequantize() if x.is_quantized else x
    plain = plain.to_dense() if plain.is_sparse else plain
    array = np.asarray(plain.cpu()._host())
    if array.dtype.kind == "c":
        return np.stack([np.real(array), np.imag(array)]).astype(np.float64)
    return array.astype(np.float64)


def _compared(name: str, kinds: tuple[str, str], a: list[Any], b: list[Any], tolerance: float) -> Layer:
    kind = kinds[0] if kinds[0] == kinds[1] else f"{kinds[0]} / {kinds[1]}"
    size = tuple(a[0].shape) if a else ()
    sizes = [[tuple(x.shape) for x in tensors] for tensors in (a, b)]
    if sizes[0] != sizes[1]:
        reason = f"sizes differ: {sizes[0]} and {sizes[1]}"
        return Layer(name, kind, size, math.inf, math.inf, -math.inf, True, reason)
    signal = noise = worst = 0.0
    for x, y in zip(map(_numbers, a), map(_numbers, b), strict=True):
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        with np.errstate(invalid="ignore", over="ignore"):
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
    inputs: Any,
    *,
    tolerance: float = 1e-3,
    around_a: Around = None,
    around_b: Around = None,
) -> Comparison:
    """Run two models on the same inputs, and list how far the results of their modules depart from each other.

    Modules are matched by their paths, so the models are forms of one model: float and quantized, on the CPU and on an
    accelerator, plain and compiled (`weft.compile(model)`). Both may also be one model, run in different contexts:
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
    second = {name: (kind, tensors) for name, kind, tensors in _run(model_b, inputs, around_b)}
    layers, only_a = [], []
    for name, kind, tensors in first:
        if name not in second:
            only_a.append(name)
            continue
        other, others = second.pop(name)
        if tensors or others:
            layers.append(_compared(name, (kind, other), tensors, others, tolerance))
    return Comparison(layers, tolerance, only_a, list(second))
