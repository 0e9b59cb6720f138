"""The classes of traced functions and modules."""

from __future__ import annotations

from collections.abc import Mapping

from weft._base.types import Arg, FileLike, Result
from weft.errors import ModuleError
from weft.export._file import save as save_program
from weft.export._program import ExportedProgram
from weft.nn._module import Module


class ScriptFunction:
    """A traced function."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self.__name__ = self.name = program.name

    def __call__(self, *args: Arg, **kwargs: Arg) -> Result:
        """Run the program."""
        return self.program(*args, **kwargs)

    @property
    def graph(self) -> str:
        """The program as text in StableHLO."""
        return self.program.stablehlo()

    inlined_graph = graph
    code = graph

    def save(self, f: FileLike, _extra_files: Mapping[str, str | bytes] | None = None) -> None:
        """Write it to a file, as `weft.jit.save` does."""
        save_program(self.program, f, extra_files=_extra_files)

    def __repr__(self) -> str:
        return repr(self.program).replace("ExportedProgram", "ScriptFunction", 1)


class ScriptModule(Module):
    """The base of modules with script methods, which run as Python, and of traced modules."""

    def _traced(self) -> ExportedProgram:
        """The program of a traced module."""
        raise ModuleError(
            f"{type(self).__name__} was not traced, so it has no program: use weft.jit.trace(module, example_inputs), "
            "or save its state_dict()"
        )

    @property
    def graph(self) -> str:
        """The program as text in StableHLO."""
        return self._traced().stablehlo()

    @property
    def inlined_graph(self) -> str:
        """The same as `graph`."""
        return self.graph

    @property
    def code(self) -> str:
        """The same as `graph`."""
        return self.graph

    def save(self, f: FileLike, _extra_files: Mapping[str, str | bytes] | None = None) -> None:
        """Write it to a file, as `weft.jit.save` does."""
        save_program(self._traced(), f, extra_files=_extra_files)
