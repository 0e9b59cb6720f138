"""Names of PyTorch's export to ONNX for programs that import them; `weft.export` exports to StableHLO."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.onnx import symbolic_helper as symbolic_helper
from weft.onnx._names import OnnxExporterError as OnnxExporterError
from weft.onnx._names import ONNXProgram as ONNXProgram
from weft.onnx._names import OperatorExportTypes as OperatorExportTypes
from weft.onnx._names import TensorProtoDataType as TensorProtoDataType
from weft.onnx._names import TrainingMode as TrainingMode
from weft.onnx._names import export as export
from weft.onnx._names import is_in_onnx_export as is_in_onnx_export
from weft.onnx._names import register_custom_op_symbolic as register_custom_op_symbolic
from weft.onnx._names import unregister_custom_op_symbolic as unregister_custom_op_symbolic

_serve_below(__name__)
