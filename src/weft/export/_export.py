"""`weft.export.export`: a module or a function as a program."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.export

from weft._base.guards import is_tuple
from weft._base.site import warn_user
from weft._base.types import AnyCallable, Arg, Args, Kwargs, PyTree
from weft._lazy.aval import Aval
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, CompileError, ProgramError, ValueRangeError, WeftError
from weft.export._dims import MOST, Dim, SizeSpec, argument_names, size_spec
from weft.export._graph import entries_of
from weft.export._inputs import Inputs, computed
from weft.export._program import About, ArrayType, ExportedProgram
from weft.export._record import GENERATOR, ProgramRecording, record, with_shape
from weft.export._shapes import AdditionalInputs, ShapesCollection
from weft.export._sizes import Form, Sizes, examples_of, form_of, reason_of, symbols_for
from weft.export._state import NamedState
from weft.export._structure import Structure, constants, flatten, paths, rebuild
from weft.nn._module import Module

if TYPE_CHECKING:
    from weft.export._dims import DynamicShapes

_LATEST = 128
"""How far above the requested lower bound the sizes of a program may start."""
_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def export(
    mod: Module | Callable[..., object],
    args: Args,
    kwargs: Kwargs | None = None,
    *,
    dynamic_shapes: DynamicShapes = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
    state: PyTree = None,
    platforms: Sequence[str] | None = None,
) -> ExportedProgram:
    """Record `mod(*args, **kwargs)` as a program that runs without Python, and without this package.

    The values of the tensors among the arguments do not matter, and nothing is computed. Their sizes are those of the
    program, except where `dynamic_shapes` has a `Dim`: it is a dict by argument name, or a tuple or list in the order
    of the arguments, with a dict from dims to `Dim` (or a sequence over all dims) for each tensor; or a
    `ShapesCollection`, or `AdditionalInputs`. Arguments that are no tensors are constants.

    Parameters and buffers of a module are inputs of the program. So is what `state` names: modules, optimizers and
    tensors, in lists or dicts. A function may write to all of these (a step of training writes to parameters and to the
    optimizer's state); other tensors from outside are constants. Numbers in an optimizer's groups, such as the learning
    rate, become state. Gradients are None when the function begins, and are dropped when it ends.

    `platforms`, such as ("cpu", "cuda", "tpu"), are the kinds of devices that the program will run on; by default that
    of this process. `strict` and `preserve_module_call_signature` are accepted and ignored.

    `CompileError` if the function reads a value; `ProgramError` if it cannot be recorded for all sizes, or writes to
    an argument or a tensor from outside. Index checks do not run in a program.
    """
    del strict, preserve_module_call_signature
    if not callable(mod):
        raise ArgumentError(
            f"export: Expected `mod` to be an instance of `torch.nn.Module` or a function, got {type(mod)}"
        )
    if not is_tuple(args):
        raise ArgumentError(f"export: Expecting `args` to be a tuple of example positional inputs, got {type(args)}")
    if isinstance(platforms, str):
        raise ArgumentError(f"export: platforms must be a tuple or list, such as ('cuda',), got the str {platforms!r}")
    if platforms is not None and not set(platforms) <= set(_PLATFORMS):
        raise ValueRangeError(f"export: platforms must be among {', '.join(_PLATFORMS)}, got {tuple(platforms)}")
    if isinstance(dynamic_shapes, (ShapesCollection, AdditionalInputs)):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(mod, args, kwargs)
    exporter = _Exporter(mod, args, dict(kwargs or {}), state, platforms)
    inputs = (exporter.signature_of, args, exporter.kwargs, dynamic_shapes)
    program = _widest_program(exporter, size_spec(*inputs), size_spec(*inputs, duck=True))
    exporter.warn_of_numbers()
    return program


def _widest_program(exporter: _Exporter, apart: SizeSpec, duck: SizeSpec) -> ExportedProgram:
    """The program in which each size with `Dim.AUTO` changes, or equal ones as one dim, or some of them."""
    try:
        return exporter.program(apart)
    except WeftError:
        if not apart.guessed:
            raise
    if len(duck.guessed) < len(apart.guessed):
        with suppress(WeftError):
            return exporter.program(duck)
    return _with_possible_guesses(exporter, duck)


def _with_possible_guesses(exporter: _Exporter, spec: SizeSpec) -> ExportedProgram:
    """The program in which those dims with `Dim.AUTO` change that can change together; leading dims are tried first.

    Dims of equal size are tried as one dim. If that fails, they are tried position by position: those that are first in
    their tensors, those that are second, and so on.
    """
    places: dict[str, list[tuple[int, int]]] = {}
    for number, shape in enumerate(spec.shapes):
        for at, d in enumerate(shape):
            if isinstance(d, Dim) and d.__name__ in spec.guessed:
                places.setdefault(d.__name__, []).append((number, at))
    kept: dict[tuple[int, int], Dim] = {}
    program = exporter.program(_with_guesses(spec, exporter.examples, kept))
    for name in sorted(places, key=lambda name: min(at for _, at in places[name])):
        columns = sorted({at for _, at in places[name]})
        apart = [[place for place in places[name] if place[1] == at] for at in columns]
        groups = [(name, places[name]), *[(f"{name}_{group[0][1]}", group) for group in apart if len(apart) > 1]]
        for own, group in groups:
            if len(places) == len(apart) == 1:  # that is what has failed
                break
            more = kept | dict.fromkeys(group, Dim(own))
            try:
                program, kept = exporter.program(_with_guesses(spec, exporter.examples, more)), more
            except WeftError:
                continue
            if own == name:
                break
    return program


def _with_guesses(spec: SizeSpec, examples: Sequence[Tensor], kept: Mapping[tuple[int, int], Dim]) -> SizeSpec:
    """The specification with the example's sizes in place of `Dim.AUTO`, except for the dims in `kept`."""
    shapes: list[tuple[int | Dim, ...]] = []
    symbols = {name: dim for name, dim in spec.symbols.items() if name not in spec.guessed}
    sizes = {name: spec.example[name] for name in symbols}
    for number, (shape, example) in enumerate(zip(spec.shapes, examples, strict=True)):
        entries: list[int | Dim] = []
        for at, (d, n) in enumerate(zip(shape, example.shape, strict=True)):
            if not isinstance(d, Dim) or d.__name__ not in spec.guessed:
                entries.append(d)
            elif (dim := kept.get((number, at))) is None:
                entries.append(n)
            else:
                entries.append(dim)
                symbols[dim.__name__] = dim
                sizes[dim.__name__] = n
        shapes.append(tuple(entries))
    return SizeSpec(shapes, symbols, sizes, frozenset())


class _Exporter:
    """One export: the function, its example arguments and its state."""

    def __init__(
        self, mod: AnyCallable, args: Args, kwargs: Kwargs, state: PyTree, platforms: Sequence[str] | None
    ) -> None:
        self.function = mod
        self.kwargs = kwargs
        self.signature_of: AnyCallable = mod.forward if isinstance(mod, Module) else mod
        self.name: str = type(mod).__name__ if isinstance(mod, Module) else getattr(mod, "__name__", type(mod).__name__)
        self._platforms = None if platforms is None else tuple(platforms)
        self._recordings: dict[object, ProgramRecording] = {}
        self.examples: list[Tensor] = []
        self._args: Structure = flatten(args, self.examples, "args")
        self._kwargs = flatten(kwargs, self.examples, "kwargs")
        names: list[str] = []
        named = argument_names(self.signature_of, args, kwargs)
        for name, thing in named:
            names.extend(paths(flatten(thing, [], name), name))
        self._names = tuple(names)
        self._state = NamedState()
        owner = getattr(mod, "__self__", None)
        for module in (mod, owner):
            if isinstance(module, Module):
                self._state.add(module, "")
        if state is not None:
            self._state.add(state, "")

    def warn_of_numbers(self) -> None:
        """Warn of an optimizer's numbers that a program cannot change."""
        names = [*self._state.changed_numbers]
        if names:
            warn_user(
                f"export: the function changes {', '.join(map(repr, names[:3]))}{' and others' if names[3:] else ''}: "
                "Python numbers, which stay as they are in a program, so that every call does what the first one does; "
                "keep them as tensors, which are state"
            )

    # --- recording ----------------------------------------------------------------------------------------------

    def program(self, spec: SizeSpec) -> ExportedProgram:
        """The program for these sizes."""
        if not spec.symbols:
            return self._exported(spec, [{}], {})
        bounds = {name: (dim.min, dim.max) for name, dim in spec.symbols.items()}
        # Recorded from 2 on, as functions treat size 1 differently (it broadcasts); the program may still be right for
        # 1.
        from_two = {name: (max(low, 2), high) for name, (low, high) in bounds.items()}
        try:
            return self._from(spec, from_two)
        except WeftError as error:
            later = self._later_start(spec, from_two)
            if later is None:
                raise
            starts = ", ".join(f"{name!r} from {low} on" for name, (low, _) in later.items() if low > 2)
            if any(spec.example[name] < low for name, (low, _) in later.items()):
                raise ProgramError(f"{error}. With an example of that size, it may be possible for {starts}") from None
            try:
                program = self._from(spec, later)
            # A later start that does not help leaves the first error, which is the one to explain.
            except WeftError:
                raise error from None
        for name, (low, high) in later.items():
            if low > from_two[name][0] and name not in spec.guessed:
                bound = "" if high == MOST else f", max={high}"
                text = (
                    f"{self.name}: it can be exported for {name!r} from {low} on, as it does something else with "
                    f"smaller sizes; say so by Dim({name!r}, min={low}{bound})"
                )
                if bounds[name][0] > 1:
                    raise ProgramError(text)
                warn_user(text)
        return program

    def _from(self, spec: SizeSpec, bounds: dict[str, tuple[int, int]]) -> ExportedProgram:
        """The program for sizes within bounds. Where they start at 2, it takes size 1, too, if possible."""
        probes = examples_of(bounds, spec.example)
        least = {name: (1, high) for name, (low, high) in bounds.items() if low == 2 and spec.symbols[name].min == 1}
        together = [list(least)] if least else []
        for names in (*together, *[[name] for name in least if len(least) > 1]):
            ones = [{**probes[0], name: 1} for name in names]
            with suppress(WeftError):  # PyTorch specializes on 0 and 1, too
                return self._exported(spec, [*probes, *ones], {**bounds, **{name: least[name] for name in names}})
        self._require_examples(spec, bounds)
        return self._exported(spec, probes, bounds)

    def _require_examples(self, spec: SizeSpec, bounds: Mapping[str, tuple[int, int]]) -> None:
        for name, (low, _) in bounds.items():
            if spec.example[name] < low:
                raise ProgramError(
                    f"{self.name}: in the example {name!r} is {spec.example[name]}, which is a size of its own for the "
                    f"function; export it with an example of {low} or more, or leave the size static"
                )

    def _later_start(self, spec: SizeSpec, bounds: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]] | None:
        """Bounds that start later, within which the function has the same operators for all sizes; None without any.

        After five strides, an image of 32 pixels has a single pixel, and functions may treat size 1 differently.
        """
        # All different, so that dims are told apart.
        large = {name: min(high, low + _LATEST + place) for place, (name, (low, high)) in enumerate(bounds.items())}

        def form(sizes: dict[str, int]) -> Form | None:
            try:
                return form_of(self._recorded(spec, sizes).closed.jaxpr)
            except WeftError:
                return None

        wanted = form(large)
        later = dict(bounds)
        for name, (low, high) in bounds.items():
            sizes = range(low, large[name])
            # By bisection, since each size costs a recording.
            start = low + bisect_left(sizes, True, key=lambda n: form({**large, name: n}) == wanted)
            if start == large[name]:
                return None
            later[name] = (start, high)
        return later if wanted is not None and later != bounds else None

    def _recorded(self, spec: SizeSpec, sizes: Mapping[str, int]) -> ProgramRecording:
        """The recording with these sizes of the named dims."""
        key = tuple(spec.shapes_at(sizes))
        if key not in self._recordings:
            self._recordings[key] = self._record(spec, sizes)
        return self._recordings[key]

    def _record(self, spec: SizeSpec, sizes: Mapping[str, int]) -> ProgramRecording:
        inputs: list[tuple[Aval, bool]] = [
            (with_shape(x._read().aval, shape), x.requires_grad)
            for x, shape in zip(self.examples, spec.shapes_at(sizes), strict=True)
        ]

        def rebuilt(tensors: list[Tensor]) -> tuple[Args, Kwargs]:
            return rebuild(self._args, tensors), rebuild(self._kwargs, tensors)

        try:
            return record(self.function, inputs, rebuilt, self._state, self.name, self._names)
        except (CompileError, ProgramError):
            raise
        except Exception as error:
            if not sizes:
                raise
            text = _sizes_text(sizes)
            raise ProgramError(
                f"{self.name}: with {text} it fails ({type(error).__name__}: {error}), so it cannot be exported for "
                "all sizes; bound them by Dim(name, min=…, max=…), use a multiple such as 2 * Dim(name), or leave them "
                "static"
            ) from error

    def _exported(
        self, spec: SizeSpec, probes: Sequence[dict[str, int]], bounds: dict[str, tuple[int, int]]
    ) -> ExportedProgram:
        first = self._recorded(spec, probes[0])
        recordings = [first]
        for sizes in probes[1:]:
            recordings.append(other := self._recorded(spec, sizes))
            counts = [len(one.closed.jaxpr.eqns) for one in (first, other)]
            if counts[0] != counts[1]:  # before anything is recorded with larger sizes
                raise ProgramError(
                    f"{self.name}: it cannot be exported for all sizes, as the number of operators depends on them: "
                    f"{counts[0]} for {_sizes_text(probes[0])}, {counts[1]} for {_sizes_text(sizes)}; let fewer dims "
                    "change, or use operators in place of a Python loop"
                )
            _require_same_values(first.outputs, other.outputs, self.name, (_sizes_text(probes[0]), _sizes_text(sizes)))
            if (other.outputs, other.changed, other.draws) != (first.outputs, first.changed, first.draws) or [
                source.kind for source in other.sources
            ] != [source.kind for source in first.sources]:
                raise ProgramError(
                    f"{self.name}: it cannot be exported for all sizes, as with other sizes it returns, writes or uses "
                    "other tensors; let fewer dims change"
                )
        symbols = symbols_for(bounds, MOST)
        state = Inputs(self._state, recordings)
        numbers = Sizes(probes, symbols, self.name)
        core = partial(computed, recordings, numbers, state)
        shapes = [
            tuple([d.factor * symbols[d.__name__] + d.offset if isinstance(d, Dim) else d for d in shape])
            for shape in spec.shapes
        ]
        structs = [jax.ShapeDtypeStruct(shape, x.dtype.numpy) for shape, x in zip(shapes, self.examples, strict=True)]
        program = self._lowered(core, state.structs(), structs)
        types = [
            ArrayType(x.dtype.name, tuple(map(_entry, shape)))
            for shape, x in zip(spec.shapes, self.examples, strict=True)
        ]
        changes = (*first.changed, *([GENERATOR] if first.draws else []))
        about = About(
            self.name, self._args, self._kwargs, self._names, tuple(types), first.outputs, state.types(), state.kinds,
            changes, first.draws, bounds, isinstance(self.function, Module),
            entries_of(
                [r.applications for r in recordings],
                state.leaves(recordings, self._names, numbers),
                first.results,
                numbers,
            ),
        )  # fmt: skip
        return ExportedProgram(program, about, state.tensors)

    def _lowered(
        self, core: Callable[..., object], state: PyTree, structs: Sequence[jax.ShapeDtypeStruct]
    ) -> jax.export.Exported:
        def function(state: PyTree, *inputs: object) -> object:
            return core(state, inputs)

        function.__name__ = self.name if self.name.isidentifier() else "function"
        try:
            jitted: Arg = jax.jit(function)  # pyright: ignore[reportUnknownMemberType]  jax has no type for it
            return jax.export.export(jitted, platforms=self._platforms)(state, *structs)
        except WeftError as error:
            vars(error).pop("__notes__", None)  # jax's notes about its own frames
            raise
        except Exception as error:
            what = "for all sizes" if any(not isinstance(n, int) for s in structs for n in s.shape) else ""
            on = f"for {', '.join(self._platforms)}" if self._platforms else ""
            raise ProgramError(f"{self.name}: it cannot be exported {what or on} ({reason_of(error)})") from error


def _require_same_values(one: Structure, other: Structure, name: str, sizes: tuple[str, str]) -> None:
    """Refuse results that are no tensors and differ between two recordings, such as `x.shape[0]`."""
    for (path, a), (other_path, b) in zip(constants(one, "the result"), constants(other, "the result"), strict=False):
        if path == other_path and not (type(a) is type(b) and (a == b or (a != a and b != b))):
            raise ProgramError(
                f"{name}: it cannot be exported for all sizes, as {path} depends on them: {a!r} for {sizes[0]}, {b!r} "
                f"for {sizes[1]}. What is no tensor is a constant of a program; leave it out (the caller knows the "
                "sizes), or return a tensor made of it, such as torch.tensor(size)"
            )


def _sizes_text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def _entry(d: int | Dim) -> int | tuple[str, int, int]:
    return (d.__name__, d.factor, d.offset) if isinstance(d, Dim) else d
