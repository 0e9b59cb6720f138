"""Probes: stand-ins for arrays, on which functions over NumPy are traced to the steps of the machine.

The functions of the table say what a primitive computes, in terms of NumPy. Called with probes, they note which of
NumPy's functions they call, with which operands. What they compute does not depend on elements: a function that asks
for these is refused (`Opaque`), and the machine calls it with arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from operator import attrgetter
from typing import Any, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from weft._base.types import Arg
from weft._lazy.interpreter.inner import NUMBERS, kind_of, resolved
from weft._lazy.interpreter.layout import (
    Layout,
    Shadow,
    Shape,
    broadcast,
    dense,
    extent,
    is_dense,
    strides_of_results,
)
from weft._lazy.interpreter.places import Places
from weft._lazy.interpreter.steps import (
    ACCUMULATE,
    CALL,
    COPY,
    DRAW,
    HASH,
    LOOP,
    PRODUCT,
    REDUCE,
    SEARCH,
    SELECT,
    SORT,
    Step,
    extension,
)
from weft._lazy.interpreter.table import Opaque

# no cell: a table that one module fills when it is imported
FUNCTIONS: dict[Arg, Callable[..., Arg]] = {}
"""What NumPy's functions do to probes (`traced.py`): (tracing, *arguments) -> what they return."""

_MOST_KEPT = 1 << 20  # bytes of a constant that functions make at every call of theirs


class Tracing:
    """What functions do to probes, as buffers, registers and steps of the machine (`weft._native.Fragment`)."""

    def __init__(self, inputs: Sequence[Layout]) -> None:
        self.buffers: list[int | np.ndarray] = []
        self.registers: list[tuple[int, int, Shape, Shape, np.dtype]] = []
        self.steps: list[Step] = []
        self._shadows: dict[int, Shadow] = {}
        self._constants: dict[tuple[object, ...], tuple[Probe, Arg]] = {}  # with the value: its `id` stays its own
        self.inputs: list[Probe] = []
        for at, (shape, strides, dtype) in enumerate(inputs):
            self.inputs.append(self.probe(~at, 0, shape, strides, dtype))

    # --- registers --------------------------------------------------------------------------------------------

    def probe(self, buffer: int, offset: int, shape: Shape, strides: Shape, dtype: np.dtype) -> Probe:
        """A register that shows a part of a buffer."""
        return Probe(self, buffer, offset, shape, strides, dtype, is_dense(shape, strides, dtype.itemsize))

    def new(self, shape: Shape, dtype: np.dtype, strides: Shape | None = None) -> Probe:
        """A register with a buffer of its own."""
        buffers, size = self.buffers, dtype.itemsize
        buffers.append(prod(shape) * size)
        if strides:
            return self.probe(len(buffers) - 1, 0, shape, strides, dtype)
        return Probe(self, len(buffers) - 1, 0, shape, dense(shape, size), dtype, True)

    def constant(self, value: Arg, dtype: np.dtype) -> Probe:
        """A register with a known value."""
        number = (value, dtype) if type(value) in NUMBERS and value else None  # zeros of both signs are equal
        if number in self._constants:
            return self._constants[number][0]
        array = np.asarray(value, dtype)
        if min(array.strides, default=0) < 0:
            array = array.copy()
        key = (array.shape, dtype, array.tobytes()) if array.nbytes <= 16 else (id(value), dtype)
        if key not in self._constants:
            self.buffers.append(array.view())
            probe = self.probe(len(self.buffers) - 1, 0, array.shape, array.strides, dtype)
            self._constants[key] = probe, value
        if number is not None:
            self._constants[number] = self._constants[key]
        return self._constants[key][0]

    def shadow(self, buffer: int) -> Shadow:
        """The stand-in for a buffer's memory."""
        shadow = self._shadows.get(buffer)
        if shadow is None:
            shadow = self._shadows[buffer] = Shadow(*self._extent(buffer))
        return shadow

    def forget_shadows(self) -> None:
        """Free their memory, which probes refer to in circles."""
        self._shadows.clear()

    def _extent(self, buffer: int) -> tuple[int, int]:
        if buffer < 0:
            _, _, shape, strides, dtype = self.registers[~buffer]
            return extent(shape, strides, dtype.itemsize)
        entry = self.buffers[buffer]
        return (entry, 0) if isinstance(entry, int) else extent(entry.shape, entry.strides, entry.itemsize)

    # --- steps ------------------------------------------------------------------------------------------------

    def mark(self) -> tuple[int, int, int]:
        """The present state, for `return_to`."""
        return len(self.buffers), len(self.registers), len(self.steps)

    def return_to(self, mark: tuple[int, int, int]) -> None:
        """Forget what has been noted since."""
        buffers, registers, steps = mark
        for at in range(buffers, len(self.buffers)):
            self._shadows.pop(at, None)
        self._constants = {key: entry for key, entry in self._constants.items() if entry[0].number < registers}
        del self.buffers[buffers:], self.registers[registers:], self.steps[steps:]

    def loop(self, ufunc: np.ufunc, operands: Sequence[Arg]) -> Probe | tuple[Probe, ...]:
        """A ufunc applied element by element."""
        types = resolved(ufunc, tuple([x.dtype if type(x) is Probe else kind_of(x) for x in operands]))
        if types is None:
            raise Opaque(ufunc.__name__)
        ins, outs = types
        probes = [
            x if type(x) is Probe and x.dtype is dtype else self.converted(x, dtype)
            for x, dtype in zip(operands, ins, strict=True)
        ]
        results = self.results(probes, outs)
        self.steps.append((LOOP, ufunc, 0, [r.number for r in results], [x.number for x in probes]))
        return results[0] if len(results) == 1 else tuple(results)

    def results(self, operands: Sequence[Probe], dtypes: Sequence[np.dtype]) -> list[Probe]:
        """New registers for what is computed element by element. They lie as NumPy's results do."""
        shapes = [x.shape for x in operands]
        shape = shapes[0] if shapes.count(shapes[0]) == len(shapes) else broadcast(*shapes)
        if False not in [x.is_dense for x in operands]:
            return [self.new(shape, dtype) for dtype in dtypes]
        strides = strides_of_results(tuple([(x.shape, x.strides, x.dtype) for x in operands]), tuple(dtypes))
        return [self.new(shape, dtype, lies) for lies, dtype in zip(strides, dtypes, strict=True)]

    def converted(self, x: Arg, dtype: np.dtype) -> Probe:
        """An operand in an element type."""
        if not isinstance(x, Probe):
            if getattr(x, "nbytes", 0) > _MOST_KEPT:
                raise Opaque("a large constant")
            return self.constant(x, dtype)
        return x if x.dtype == dtype else x.astype(dtype)

    def copy(self, source: Probe, target: Probe) -> None:
        """Write the elements of a register to another one, in that one's type."""
        if not extension().has_copy(source.dtype, target.dtype):
            raise Opaque(f"{source.dtype} to {target.dtype}")
        self.steps.append((COPY, None, 0, [target.number], [source.number]))

    def select(self, which: Arg, yes: Arg, no: Arg) -> Probe:
        """Elements of `yes` or of `no`, in the type that NumPy finds for both."""
        dtype = np.result_type(*[x.dtype if isinstance(x, Probe) else x for x in (yes, no)])
        operands = [self.converted(which, np.dtype(bool)), self.converted(yes, dtype), self.converted(no, dtype)]
        if dtype.itemsize not in (1, 2, 4, 8, 16):
            raise Opaque(str(dtype))
        (result,) = self.results(operands, [dtype])
        self.steps.append((SELECT, None, 0, [result.number], [x.number for x in operands]))
        return result

    def reduction(self, ufunc: np.ufunc, x: Probe, axes: Shape, dtype: np.dtype, initial: object) -> Probe:
        """A reduction over these axes, in the element type `dtype`."""
        if x.dtype != dtype or not x.is_dense or not extension().has_loop(ufunc, (dtype,) * 3):
            raise Opaque(f"{ufunc.__name__}.reduce")
        if initial is None and ufunc.identity is not None:
            initial = ufunc.identity
        if initial is None and 0 in x.shape:
            raise Opaque("a reduction of nothing")
        result = self.new(tuple([size for at, size in enumerate(x.shape) if at not in axes]), dtype)
        start = None if initial is None else np.asarray(initial).astype(dtype)
        self.steps.append((REDUCE, (ufunc, axes, start), 0, [result.number], [x.number]))
        return result

    def product(self, ufunc: np.ufunc, x: Probe, y: Probe) -> Probe:
        """A product of matrices, by NumPy's function or that of the extension."""
        operands, ndim = (x, y), max(x.ndim, y.ndim)
        if min(x.ndim, y.ndim) < 2 or not extension().has_loop(ufunc, (x.dtype, y.dtype, x.dtype)):
            raise Opaque("matmul")
        if ndim > 2 and not all(_descends(operand) for operand in operands):
            raise Opaque("matmul")  # NumPy lets its result lie otherwise
        shape = (*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1])
        result = self.new(shape, x.dtype)
        self.steps.append((PRODUCT, ufunc, 0, [result.number], [x.number, y.number]))
        return result

    def search(self, x: Probe, axis: int, *, largest: bool) -> Probe:
        """The positions of the largest or the smallest elements along an axis."""
        if not x.size or x.dtype.kind == "V":
            raise Opaque("argmax")
        x = x.lines(axis)
        result = self.new(x.shape[:-1], np.dtype(np.intp))
        length = x.shape[-1]
        self.steps.append((SEARCH, (largest, length), length, [result.number], [x[..., 0].number]))
        return result

    def sort(self, x: Probe, axis: int, *, positions: bool) -> Probe:
        """The elements along an axis in a stable order, NaN last, or their positions."""
        if x.dtype.kind not in "biuf" or x.dtype.itemsize > 8 or x.dtype == np.float16:
            raise Opaque("sort")
        x = x.lines(axis)
        result = self.new(x.shape, np.dtype(np.intp) if positions else x.dtype)
        if x.size:
            self.steps.append((SORT, positions, x.shape[-1], [result[..., 0].number], [x[..., 0].number]))
        order = list(range(x.ndim - 1))
        return result.transpose(*order[:axis], x.ndim - 1, *order[axis:])

    def accumulation(self, ufunc: np.ufunc, x: Probe, axis: int, dtype: np.dtype) -> Probe:
        """What is combined so far, at each place along an axis."""
        if x.dtype != dtype or not x.size or not x.is_dense or not extension().has_loop(ufunc, (dtype,) * 3):
            raise Opaque(f"{ufunc.__name__}.accumulate")
        result = self.new(x.shape, dtype)
        first = (*[slice(None)] * axis, 0)
        payload = ufunc, x.shape[axis], x.strides[axis], result.strides[axis]
        self.steps.append((ACCUMULATE, payload, x.shape[axis], [result[first].number], [x[first].number]))
        return result

    def call(
        self, function: Callable[..., Any], flags: int, operands: Sequence[Probe], results: Sequence[Probe]
    ) -> Sequence[Probe]:
        """A call of a function with arrays."""
        self.steps.append((CALL, function, flags, [r.number for r in results], [x.number for x in operands]))
        return results


def _descends(x: Probe) -> bool:
    """Whether the strides of matrices descend, so that a result lies row after row."""
    strides = [stride for size, stride in zip(x.shape[:-2], x.strides[:-2], strict=True) if size > 1 and stride]
    return all(stride > 0 for stride in strides) and strides == sorted(strides, reverse=True)


_REAL: Callable[[np.ndarray], Arg] = attrgetter("real")
_IMAG: Callable[[np.ndarray], Arg] = attrgetter("imag")


class Probe(Places, NDArrayOperatorsMixin):
    """A stand-in for an array: a register, with its type and how it lies."""

    __slots__ = ("buffer", "dtype", "is_dense", "ndim", "number", "offset", "shape", "strides", "tracing")

    def __init__(
        self,
        tracing: Tracing,
        buffer: int,
        offset: int,
        shape: Shape,
        strides: Shape,
        dtype: np.dtype,
        is_dense: bool,
    ) -> None:
        registers = tracing.registers
        self.number = len(registers)
        registers.append((buffer, offset, shape, strides, dtype))
        self.tracing = tracing
        self.buffer = buffer
        self.offset = offset
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.ndim = len(shape)
        self.is_dense = is_dense

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def flags(self) -> Arg:
        return self.shadow.flags

    @property
    def shadow(self) -> np.ndarray:
        """An array that lies as the register does, of elements that mean nothing."""
        if not self.size:
            return np.empty(self.shape, self.dtype)
        shadow = self.tracing.shadow(self.buffer)
        return np.ndarray(self.shape, self.dtype, shadow.memory, shadow.first + self.offset, self.strides)

    def register_of(self, view: Arg) -> Probe:
        """The register for a view of the shadow; refused if it is none."""
        if type(view) is not np.ndarray:
            raise Opaque("an element")
        dtype: np.dtype = view.dtype
        if not view.size:
            return self.tracing.new(view.shape, dtype)
        shadow = self.tracing.shadow(self.buffer)
        offset = extension().distance(shadow.memory, view) - shadow.first
        if not 0 <= shadow.first + offset < shadow.memory.nbytes:
            raise Opaque("a copy")
        return self.tracing.probe(self.buffer, offset, view.shape, view.strides, dtype)

    # --- views ------------------------------------------------------------------------------------------------

    def _view(self, function: Callable[[np.ndarray], Arg]) -> Probe:
        return self.register_of(function(self.shadow))

    def reshape(self, *shape: Arg) -> Probe:
        try:
            return self._view(lambda x: np.reshape(x, shape[0] if len(shape) == 1 else shape, copy=False))
        except ValueError:
            if self.is_dense:
                raise
        return self.copy().reshape(*shape)

    def transpose(self, *order: Arg) -> Probe:
        return self._view(lambda x: x.transpose(*order))

    def view(self, dtype: Arg) -> Probe:
        return self._view(lambda x: x.view(dtype))

    @property
    def real(self) -> Probe:
        return self._view(_REAL)

    @real.setter
    def real(self, value: Arg) -> None:
        self.real[...] = value

    @property
    def imag(self) -> Probe:
        return self._view(_IMAG)

    @imag.setter
    def imag(self, value: Arg) -> None:
        self.imag[...] = value

    def __getitem__(self, key: Arg) -> Probe:
        return self._view(lambda x: x[_basic(key)])

    def __setitem__(self, key: Arg, value: Arg) -> None:
        part = self[key]
        source = self.tracing.converted(value, part.dtype)
        if np.broadcast_shapes(source.shape, part.shape) != part.shape:
            raise Opaque("an array that is too large")
        self.tracing.copy(source, part)

    def __iter__(self) -> Iterator[Probe]:
        return iter([self[at] for at in range(self.shape[0])])

    # --- new arrays -------------------------------------------------------------------------------------------

    def copy(self, order: str = "C") -> Probe:
        if order != "C":
            raise Opaque("copy")
        result = self.tracing.new(self.shape, self.dtype)
        self.tracing.copy(self, result)
        return result

    def lines(self, axis: int) -> Probe:
        """The same elements with an axis moved to the end, along which they follow each other."""
        order = [at for at in range(self.ndim) if at != axis]
        moved = self if axis == self.ndim - 1 else self.transpose(*order, axis)
        return moved if moved.is_dense else moved.copy()

    def argsort(self, axis: int, kind: str) -> Probe:
        if kind != "stable":
            raise Opaque("argsort")
        return self.tracing.sort(self, axis, positions=True)

    def astype(self, dtype: Arg, copy: bool = True) -> Probe:
        dtype = np.dtype(dtype)
        if not copy and dtype == self.dtype:
            return self
        strides = None if self.is_dense else np.empty_like(self.shadow, dtype).strides
        result = self.tracing.new(self.shape, dtype, strides)
        self.tracing.copy(self, result)
        return result

    def drawn(self, shape: Shape, dtype: np.dtype) -> Probe:
        """The random bits that one key draws."""
        result = self.tracing.new(shape, dtype)
        flat = result.reshape(-1)
        self.tracing.steps.append((DRAW, None, 0, [flat.number], [self.number]))
        return result

    def hashed(self, *words: Arg) -> tuple[Probe, Probe]:
        """Threefry of keys and counters, each of two words; this is one of them."""
        tracing, word = self.tracing, np.dtype(np.uint32)
        probes = [tracing.converted(x, word) for x in words]
        x, y = tracing.results(probes, [word, word])
        tracing.steps.append((HASH, None, 0, [x.number, y.number], [probe.number for probe in probes]))
        return x, y

    # --- NumPy's protocols ------------------------------------------------------------------------------------

    def __array__(self, *args: Arg, **options: Arg) -> np.ndarray:
        raise Opaque("an array")

    def __bool__(self) -> bool:
        raise Opaque("an element")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Arg, **options: Arg) -> Arg:
        # What is not known to be one of the machine's loops is refused, and becomes a call: so a step that is noted is
        # exactly what NumPy would run, and never nearly that.
        if method == "reduce":
            (x,) = inputs
            if not options.keys() <= {"axis", "dtype", "initial"} or not isinstance(x, Probe):
                raise Opaque("reduce")
            axes = tuple([axis % x.ndim for axis in options["axis"]])
            return self.tracing.reduction(ufunc, x, axes, np.dtype(options["dtype"]), options.get("initial"))
        if method == "accumulate":
            (x,) = inputs
            if options.keys() != {"axis", "dtype"}:
                raise Opaque("accumulate")
            return self.tracing.accumulation(ufunc, x, options["axis"], np.dtype(options["dtype"]))
        out = options.pop("out", None)
        if method != "__call__" or options or (out is not None and out != (inputs[0],)):
            raise Opaque(ufunc.__name__)
        if ufunc.__name__ == "matmul":
            if not all(isinstance(x, Probe) for x in inputs):
                raise Opaque("matmul")
            return self.tracing.product(ufunc, *inputs)
        result = self.tracing.loop(ufunc, inputs)
        if out is not None and (
            not isinstance(result, Probe) or (result.shape, result.dtype) != (self.shape, self.dtype)
        ):
            raise Opaque("an array that is overwritten")
        return result

    def __array_function__(self, function: Arg, types: Arg, args: Arg, kwargs: Arg) -> Arg:
        trace = FUNCTIONS.get(function)
        if trace is None:
            raise Opaque(function.__name__)
        return trace(self.tracing, *args, **kwargs)


def _basic(key: Arg) -> Arg:
    """A key that makes a view; refused if it is another one."""
    parts = cast("tuple[Arg, ...]", key if type(key) is tuple else (key,))
    if not all(part is None or part is ... or isinstance(part, (int, slice)) for part in parts):
        raise Opaque("elements")
    return parts if ... in parts else (*parts, ...)
