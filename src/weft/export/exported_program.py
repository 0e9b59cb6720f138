"""Exported programs."""

from weft.export._program import ExportedProgram as ExportedProgram
