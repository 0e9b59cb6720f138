"""`weft.jit.trace`: functions and modules as programs, by `weft.export`."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from weft._base.device import DeviceLike
from weft._base.types import AnyCallable, Arg, Args, FileLike, Kwargs, PyTree, Result
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ModuleError, NameKeyError, ProgramError
from weft.export._dims import Dim
from weft.export._export import export
from weft.export._file import load as load_program
from weft.export._program import ExportedProgram, ProgramModule
from weft.jit._script import ScriptFunction, ScriptModule
from weft.nn._module import Module


class TracerWarning(Warning):
    """The category of PyTorch's warnings about traces. What it warns about is an error here."""


class TopLevelTracedModule(ScriptModule, ProgramModule):
    """A traced module. Its parameters are those of the module that was traced."""

    def _traced(self) -> ExportedProgram:
        return self.program.with_tensors(self._tensors())


def trace(
    func: AnyCallable,
    example_inputs: PyTree = None,
    optimize: object = None,
    check_trace: bool = True,
    check_inputs: object = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: object = None,
    _compilation_unit: object = None,
    example_kwarg_inputs: Mapping[str, object] | None = None,
    _store_inputs: bool = True,
) -> Result:
    """A module or function as a program: what it does for inputs like these, given as a tuple or one tensor.

    Python's control flow is that of the example. Sizes may change in later calls where the function does the same for
    all sizes, first dims before others. A module's mode (training or evaluation) is that of the moment.
    `CompileError` if the function reads a value of a tensor. Other arguments are accepted and ignored.
    """
    del optimize, check_trace, check_inputs, check_tolerance, strict, _force_outplace, _module_class
    del _compilation_unit, _store_inputs
    if example_inputs is None and example_kwarg_inputs is None:
        raise ProgramError(
            "example_kwarg_inputs should be a dict or example_inputs a tuple of tensors, got None for both"
        )
    if isinstance(func, (ScriptFunction, TopLevelTracedModule)):
        return func
    if not callable(func):
        raise ArgumentError(f"jit.trace: expected a function or a module, got {type(func).__name__}")
    program = _program(func, _as_tuple(example_inputs), dict(example_kwarg_inputs or {}))
    return TopLevelTracedModule(program) if isinstance(func, Module) else ScriptFunction(program)


def trace_module(mod: Module, inputs: Mapping[str, PyTree], *args: Arg, **kwargs: Arg) -> Result:
    """Trace a module's `forward`, with `inputs` `{"forward": example_inputs}`."""
    if not isinstance(mod, Module):
        raise NameKeyError("expected torch.nn.Module as the first argument")
    if set(inputs) != {"forward"}:
        raise ModuleError(
            f"jit.trace_module: only 'forward' can be traced, got {sorted(inputs)}; trace other methods one by one "
            "with weft.jit.trace(module.method, example_inputs)"
        )
    return trace(mod, inputs["forward"], *args, **kwargs)


def save(m: object, f: FileLike, _extra_files: Mapping[str, str | bytes] | None = None) -> None:
    """Write a traced function or module to a path, or to a file open for binary writing."""
    if not isinstance(m, (ScriptFunction, ScriptModule)):
        raise ModuleError(
            f"jit.save: expected what jit.trace returned, got {type(m).__name__}; there is no script compiler, so "
            "trace it with example inputs: weft.jit.trace(module, example_inputs)"
        )
    m.save(f, _extra_files)


def load(
    f: FileLike,
    map_location: DeviceLike | None = None,
    _extra_files: MutableMapping[str, bytes] | None = None,
    _restore_shapes: bool = False,
) -> Result:
    """Read what `save` wrote: a module if one was traced, else a function. Gradients do not flow through it.

    `_extra_files` gets, for each of its names, the bytes of the extra file.
    """
    del _restore_shapes
    program = load_program(f, extra_files=_extra_files, device="cpu" if map_location is None else map_location)
    for name, content in (_extra_files or {}).items():
        if isinstance(content, str) and _extra_files is not None:
            _extra_files[name] = content.encode()
    return TopLevelTracedModule(program) if program.of_module else ScriptFunction(program)


def _program(func: AnyCallable, args: Args, kwargs: Kwargs) -> ExportedProgram:
    shapes = (*map(_sizes, args), *map(_sizes, kwargs.values()))
    return export(func, args, kwargs, dynamic_shapes=shapes)


def _sizes(x: PyTree) -> PyTree:
    """That all dims of the tensors in an argument may change, except for sizes of one after the first."""
    if isinstance(x, Tensor):
        return {dim: Dim.AUTO for dim in range(x.dim()) if dim == 0 or x.shape[dim] > 1}  # often a batch of one
    if isinstance(x, dict):
        return {key: _sizes(part) for key, part in x.items()}
    if isinstance(x, (list, tuple)):
        return [_sizes(part) for part in x]
    return None


def _as_tuple(example_inputs: PyTree) -> Args:
    if example_inputs is None:
        return ()
    return tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
