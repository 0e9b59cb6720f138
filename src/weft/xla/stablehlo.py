"""`torch_xla.stablehlo`: models as StableHLO in a folder, by `weft.export`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft._base.types import Arg, Args, Result
from weft.errors import ValueRangeError
from weft.export import ExportedProgram, export, load, save
from weft.nn import Module

_METHOD = "forward"


@dataclass
class StableHLOExportOptions:
    """include_human_readable_text: whether a folder gets the program as text, too.

    The other options are accepted: a program is recorded when it is exported, and is not traced again.
    """

    include_human_readable_text: bool = True
    override_tracing_arguments: tuple[Any, ...] | None = None
    override_tracing_kwargs: Mapping[str, Any] | None = None


class StableHLOGraphModule:
    """A program that is called as the model was. Its only method is "forward"."""

    def __init__(self, program: ExportedProgram) -> None:
        self._program = program

    def __call__(self, *args: Arg) -> Result:
        return self._program(*args)

    def evaluate(self, method_name: str, args: Args) -> Result:
        """Call a method with these arguments."""
        _require_method(method_name)
        return self._program(*args)

    def get_stablehlo_text(self, method_name: str | None = None) -> str:
        """The program as text."""
        _require_method(method_name)
        return self._program.stablehlo()

    def get_stablehlo_bytecode(self, method_name: str | None = None) -> bytes:
        """The program as bytecode."""
        _require_method(method_name)
        return bytes(self._program.exported.mlir_module_serialized)

    def save(self, directory_path: str | os.PathLike[str], options: StableHLOExportOptions | None = None) -> None:
        """Write to a folder: the program with its tensors in one file, its bytecode, and its text."""
        folder = Path(directory_path)
        (folder / "functions").mkdir(parents=True, exist_ok=True)
        save(self._program, folder / "program.pt2")
        (folder / "functions" / f"{_METHOD}.bytecode").write_bytes(self.get_stablehlo_bytecode())
        if options is None or options.include_human_readable_text:
            (folder / "functions" / f"{_METHOD}.mlir").write_text(self.get_stablehlo_text(), encoding="utf-8")

    @classmethod
    def load(cls, directory_path: str | os.PathLike[str]) -> StableHLOGraphModule:
        """Read what `save` has written."""
        return cls(load(Path(directory_path) / "program.pt2"))


def exported_program_to_stablehlo(
    exported_model: ExportedProgram, options: StableHLOExportOptions | None = None
) -> StableHLOGraphModule:
    """A program of `weft.export` as a module with its StableHLO."""
    del options
    return StableHLOGraphModule(exported_model)


def save_as_stablehlo(
    exported_model: ExportedProgram,
    stablehlo_dir: str | os.PathLike[str],
    options: StableHLOExportOptions | None = None,
) -> None:
    """Write a program of `weft.export` to a folder, for `StableHLOGraphModule.load`."""
    StableHLOGraphModule(exported_model).save(stablehlo_dir, options)


def save_torch_model_as_stablehlo(
    torchmodel: Module,
    args: Args,
    path: str | os.PathLike[str],
    options: StableHLOExportOptions | None = None,
) -> None:
    """Export a model for arguments of these types and sizes, and write it to a folder."""
    save_as_stablehlo(export(torchmodel, args), path, options)


def _require_method(name: str | None) -> None:
    if name not in (None, _METHOD):
        raise ValueRangeError(f"the only method of a program is {_METHOD!r}, got {name!r}")
