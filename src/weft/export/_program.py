"""`ExportedProgram`: a function in StableHLO, with its tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import jax
import jax.export

from weft._base.device import DeviceLike
from weft._base.state import ambient, using
from weft._base.types import AnyCallable, Arg, Args, Kwargs, PyTree, Result
from weft._interop.from_jax import from_jax
from weft._lazy.runtime import jax_device
from weft._tensor.convert import tensor as new_tensor
from weft._tensor.generator import default_generator
from weft._tensor.gradients import without_derivative
from weft._tensor.tensor import Tensor
from weft._tensor.view import replace_value
from weft.errors import ProgramError
from weft.export._graph import ProgramGraph
from weft.export._record import GENERATOR
from weft.export._structure import Structure, matched, paths, rebuild
from weft.nn._module import Module
from weft.nn._parameter import Parameter

CONSTANTS = "constants."
"""The prefix of the names of constants: tensors from outside that a function uses, and that are not state."""

_TRAINED = frozenset({"parameter", "buffer", "optimizer", "tensor", "option"})


@dataclass(frozen=True)
class ArrayType:
    """The type of an input, an output or a tensor of the state.

    shape   numbers, and (name, factor, offset) for `factor * size + offset`, where `size` is that of a named dim
    """

    dtype: str
    shape: tuple[int | tuple[str, int, int], ...]

    def __repr__(self) -> str:
        return f"{self.dtype}[{', '.join(map(_size_text, self.shape))}]"


@dataclass(frozen=True)
class About:
    """The description of a program; a file holds it as JSON.

    state     types by name
    kinds     "parameter", "buffer", "optimizer", "tensor", "option", "constant" or "generator", by name
    changes   names of state that the program writes
    draws     how many random draws a call takes
    sizes     the bounds of the named dims
    of_module whether a module was exported
    graph     the operators, for `Graph`
    """

    name: str
    args: Structure
    kwargs: Structure
    names: tuple[str, ...]
    inputs: tuple[ArrayType, ...]
    outputs: Structure
    state: dict[str, ArrayType]
    kinds: dict[str, str]
    changes: tuple[str, ...]
    draws: int
    sizes: dict[str, tuple[int, int]]
    of_module: bool = False
    graph: Sequence[Sequence[Any]] = ()


@dataclass(frozen=True)
class ExportGraphSignature:
    """The names of what goes into a program and what comes out of it."""

    parameters: list[str]
    buffers: list[str]
    user_inputs: list[str]
    user_outputs: list[str]
    mutated: list[str]
    inputs_to_parameters: dict[str, str]
    inputs_to_buffers: dict[str, str]


class ExportedProgram:
    """A function as a program for XLA, with the tensors that it reads besides its arguments.

    Calls take what the function took. State that the program writes, such as the running mean of a batch norm, is
    written in place in `state_dict`; its tensors are those of the module that was exported, until they are saved and
    loaded. `RuntimeError` for inputs of other types than those it was exported for.
    """

    def __init__(self, exported: jax.export.Exported, about: About, tensors: dict[str, Tensor]) -> None:
        self._exported = exported
        self.about = about
        """What a file says of the program besides the program itself."""
        self.tensors = tensors
        """State by name: parameters, buffers, constants and what an optimizer keeps."""
        self.report = ""
        """What `draft_export` had to change."""
        call: AnyCallable = exported.call  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  jax has no type for it

        def operator(state: PyTree, inputs: Sequence[jax.Array]) -> PyTree:
            return call(state, *inputs)

        self._operator = from_jax(operator)

    # --- looking at it ------------------------------------------------------------------------------------------

    @property
    def exported(self) -> jax.export.Exported:
        """The program of jax: `call(state, *inputs)` returns the outputs, and the state that has changed."""
        return self._exported

    @property
    def name(self) -> str:
        """The name of the function, or of the module's class."""
        return self.about.name

    @property
    def of_module(self) -> bool:
        """Whether it was a module."""
        return self.about.of_module

    def with_tensors(self, tensors: dict[str, Tensor]) -> ExportedProgram:
        """The same program with other tensors."""
        return ExportedProgram(self._exported, self.about, tensors)

    @property
    def state_dict(self) -> dict[str, Tensor]:
        """Parameters, buffers and the state of optimizers, by name."""
        return {name: tensor for name, tensor in self.tensors.items() if self.about.kinds[name] in _TRAINED}

    @property
    def constants(self) -> dict[str, Tensor]:
        """Other tensors from outside that the function has used."""
        return {name: tensor for name, tensor in self.tensors.items() if self.about.kinds[name] == "constant"}

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Parameters with their names."""
        return iter(self._of_kind("parameter").items())

    def parameters(self) -> Iterator[Tensor]:
        """The parameters."""
        return iter(self._of_kind("parameter").values())

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Buffers with their names."""
        return iter(self._of_kind("buffer").items())

    def buffers(self) -> Iterator[Tensor]:
        """The buffers."""
        return iter(self._of_kind("buffer").values())

    def _of_kind(self, kind: str) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in self.tensors.items() if self.about.kinds[name] == kind}

    @property
    def range_constraints(self) -> dict[str, tuple[int, int]]:
        """The bounds of the named dims."""
        return dict(self.about.sizes)

    @property
    def platforms(self) -> tuple[str, ...]:
        """The kinds of devices that the program can run on."""
        return tuple(self._exported.platforms)

    @property
    def graph_signature(self) -> ExportGraphSignature:
        """The names of what goes in and comes out."""
        about = self.about
        outputs = [path or "output" for path in paths(about.outputs, "")]
        read = {node.name: node.target for node in self.graph.find_nodes(op="placeholder")}
        parameters, buffers = self._of_kind("parameter"), self._of_kind("buffer")
        return ExportGraphSignature(
            [*parameters],
            [*buffers],
            [*about.names],
            outputs,
            [*about.changes],
            {node: name for node, name in read.items() if name in parameters},
            {node: name for node, name in read.items() if name in buffers},
        )

    @cached_property
    def graph(self) -> Result:
        """The operators that the function has recorded, one node for each, to look at."""
        return ProgramGraph(self.name, self.about.graph)

    @cached_property
    def graph_module(self) -> ProgramModule:
        """What `module()` returns, with the graph: `graph`, `code` and `print_readable()`."""
        return ProgramModule(self)

    def run_decompositions(self, decomp_table: Mapping[object, object] | None = None) -> ExportedProgram:
        """The program itself, which is made of StableHLO's operators already. `ProgramError` if a table is given."""
        if decomp_table:
            raise ProgramError(
                "run_decompositions: a decomposition table cannot be applied, as programs are made of StableHLO's "
                "operators and not of ATen's; leave it out"
            )
        return self

    @cached_property
    def is_differentiable(self) -> bool:
        """Whether gradients flow through calls. They do not if the program was saved without its derivative."""
        if not self._exported.has_vjp():
            return False
        try:
            self._exported.vjp()
        except Exception:  # such as a convolution with strides and symbolic sizes, in jax's own words
            return False
        return True

    def stablehlo(self) -> str:
        """The program as text in StableHLO."""
        return self._exported.mlir_module()

    mlir_module = stablehlo

    def __repr__(self) -> str:
        about = self.about
        results = [str(a).removeprefix("ShapedArray(").removesuffix(")") for a in self._exported.out_avals]
        outputs = zip(self.graph_signature.user_outputs, results, strict=False)
        counts: dict[str, int] = {}
        for kind in about.kinds.values():
            counts[kind] = counts.get(kind, 0) + 1
        state = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items())
        elements = sum(tensor.numel() for tensor in self.tensors.values())
        bounds = [
            f"{name} from {low}" + (f" to {high}" if high < 1 << 31 else "")
            for name, (low, high) in about.sizes.items()
        ]
        operators = len(re.findall(r"= \"?(?:stablehlo|chlo)\.", self.stablehlo()))
        lines = [
            f"ExportedProgram {about.name}",
            *[f"  input   {name}: {kind}" for name, kind in zip(about.names, about.inputs, strict=True)],
            *[f"  output  {name}: {kind}" for name, kind in outputs],
            f"  state   {state or 'none'}" + (f"; {elements:,} elements" if self.tensors else ""),
            *([f"  writes  {_few(about.changes)}"] if about.changes else []),
            *([f"  sizes   {', '.join(bounds)}"] if bounds else []),
            f"  {operators} operators of StableHLO, for {', '.join(self.platforms)}",
        ]
        return "\n".join(lines)

    # --- running it ---------------------------------------------------------------------------------------------

    def __call__(self, *args: Arg, **kwargs: Arg) -> Result:
        """Run the program. Gradients flow through it if it `is_differentiable`, unless it writes parameters."""
        return self.run(self.tensors, args, kwargs)

    def module(self, check_guards: bool = True) -> ProgramModule:
        """A module that runs the program, with the tensors of `state_dict` under their names."""
        del check_guards
        return ProgramModule(self)

    def run(self, tensors: dict[str, Tensor], args: Args, kwargs: Kwargs) -> Result:
        about = self.about
        inputs: list[tuple[str, Tensor]] = []
        if not args and about.args != {"tuple": []} and about.names and not set(kwargs) - set(about.names):
            args, kwargs = self._positional(kwargs)
        matched(about.args, args, inputs, "*args", about.name)
        matched(about.kwargs, kwargs, inputs, "**kwargs", about.name)
        self._require_types(inputs)
        device = next((x.device for x in (*tensors.values(), *[x for _, x in inputs])), None)
        self._require_platform(device)
        state: dict[str, Arg] = dict(tensors)
        if about.draws:
            seed, offset = default_generator.state()
            default_generator.restore((seed, offset + about.draws))
            state[GENERATOR] = new_tensor([seed, offset], device=device)
        writes = any(about.kinds[name] == "parameter" for name in about.changes)
        used = (*tensors.values(), *[x for _, x in inputs])
        if ambient().grad and not writes and not self._exported.has_vjp() and any(x.requires_grad for x in used):
            without_derivative[about.name] = self._exported  # for the message of a backward pass
        with using(grad=ambient().grad and not writes and self.is_differentiable):
            outputs, changed = self._operator(state, tuple([x for _, x in inputs]))
        for name in about.changes:
            if name != GENERATOR:
                replace_value(tensors[name], changed[name]._read())
        return rebuild(about.outputs, outputs)

    def _positional(self, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """Arguments given by the names of positional parameters."""
        count = len(cast("list[Any]", self.about.args["tuple"]))
        names = self.about.names[:count]
        if not all(name in kwargs for name in names):
            return (), kwargs
        return tuple([kwargs[name] for name in names]), {k: v for k, v in kwargs.items() if k not in names}

    def _require_types(self, inputs: Sequence[tuple[str, Tensor]]) -> None:
        about = self.about
        sizes: dict[str, int] = {}
        for (path, x), expected in zip(inputs, about.inputs, strict=True):
            if x.dtype.name != expected.dtype:
                raise ProgramError(
                    f"{about.name}: Expected input at {path} to have dtype {expected.dtype}, but got {x.dtype.name}; "
                    f"pass {path}.to(torch.{expected.dtype})"
                )
            if x.dim() != len(expected.shape):
                raise ProgramError(
                    f"{about.name}: Expected input at {path} to have {len(expected.shape)} dimensions "
                    f"({expected}), but got {x.dim()} (shape {list(x.shape)})"
                )
            for at, (size, entry) in enumerate(zip(x.shape, expected.shape, strict=True)):
                self._require_size(f"{path}.shape[{at}]", size, entry, sizes)

    def _require_size(self, path: str, size: int, entry: int | tuple[str, int, int], sizes: dict[str, int]) -> None:
        name = self.about.name
        if isinstance(entry, int):
            if size != entry:
                raise ProgramError(
                    f"{name}: Expected input at {path} to be equal to {entry}, but got {size}; a size that changes "
                    "between calls is given by dynamic_shapes when a function is exported"
                )
            return
        symbol, factor, offset = entry
        value, rest = divmod(size - offset, factor)
        low, high = self.about.sizes[symbol]
        if rest:
            raise ProgramError(
                f"{name}: Expected input at {path} to be of the form {_size_text(entry)}, but got {size}"
            )
        if not low <= value <= high:
            bound = f">= {low}" if value < low else f"<= {high}"
            expected = bound if (factor, offset) == (1, 0) else f"{_size_text(entry)} with {symbol} {bound}"
            raise ProgramError(f"{name}: Expected input at {path} to be {expected}, but got {size}")
        if sizes.setdefault(symbol, value) != value:
            raise ProgramError(
                f"{name}: Expected input at {path} to be {factor * sizes[symbol] + offset}, as {symbol!r} is "
                f"{sizes[symbol]} in the inputs before, but got {size}"
            )

    def _require_platform(self, device: DeviceLike | None) -> None:
        if device is None:
            return
        platform = jax_device(device).platform
        platform = "cuda" if platform == "gpu" else platform
        if platform not in self.platforms:
            raise ProgramError(
                f"{self.about.name}: it was exported for {', '.join(self.platforms)}, and its tensors are on "
                f"{device}; move them with .to(device), or export with platforms=('cpu', 'cuda', 'tpu')"
            )


class ProgramModule(Module):
    """A module that runs an exported program with its own parameters and buffers."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        self.__dict__["_program"] = program
        for name, tensor in program.tensors.items():
            path, _, own = name.rpartition(".")
            owner: Module = self
            for part in path.split(".") if path else ():
                if part not in owner._modules:
                    owner.add_module(part, Module())
                owner = cast("Module", owner._modules[part])
            if isinstance(tensor, Parameter):
                owner.register_parameter(own, tensor)
            else:
                kind = program.about.kinds[name]
                owner.register_buffer(own, tensor, persistent=kind != "constant")

    @property
    def program(self) -> ExportedProgram:
        """What the module runs."""
        return self.__dict__["_program"]

    @property
    def graph(self) -> Result:
        """The operators that the function has recorded."""
        return self.program.graph

    @property
    def code(self) -> str:
        """The graph in the form of Python code, to read."""
        return self.program.graph.code

    def print_readable(self, print_output: bool = True) -> str:
        """The code, which is printed unless `print_output` is False."""
        if print_output:
            print(self.code)
        return self.code

    def forward(self, *args: Arg, **kwargs: Arg) -> Result:
        """Run the program with the module's tensors."""
        return self.program.run(self._tensors(), args, kwargs)

    def _tensors(self) -> dict[str, Tensor]:
        table: dict[str, Tensor] = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        return {name: table[name] for name in self.program.tensors}


def _size_text(entry: int | tuple[str, int, int]) -> str:
    if isinstance(entry, int):
        return str(entry)
    name, factor, offset = entry
    return (name if factor == 1 else f"{factor}*{name}") + (f"{offset:+d}" if offset else "")


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
