"""Functions and modules as programs in StableHLO, which run without Python code of this package."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.export._dims import Dim as Dim
from weft.export._dims import dims as dims
from weft.export._draft import draft_export as draft_export
from weft.export._export import export as export
from weft.export._file import load as load
from weft.export._file import save as save
from weft.export._graph import ExportNode as ExportNode
from weft.export._graph import ProgramGraph as ProgramGraph
from weft.export._missing import __getattr__ as __getattr__
from weft.export._program import ExportedProgram as ExportedProgram
from weft.export._program import ExportGraphSignature as ExportGraphSignature
from weft.export._shapes import AdditionalInputs as AdditionalInputs
from weft.export._shapes import ShapesCollection as ShapesCollection
from weft.export._structure import register_dataclass as register_dataclass

_serve_below(__name__)
