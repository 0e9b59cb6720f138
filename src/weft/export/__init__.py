"""Functions and modules as programs in StableHLO, which run without Python code of this package."""

from weft.export._dims import Dim as Dim
from weft.export._dims import dims as dims
from weft.export._export import export as export
from weft.export._file import load as load
from weft.export._file import save as save
from weft.export._program import ExportedProgram as ExportedProgram
from weft.export._program import ExportGraphSignature as ExportGraphSignature
