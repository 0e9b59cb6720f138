"""Names of PyTorch's quantization: stubs pass their input on, since no model is quantized here."""

from weft.ao.quantization._names import QConfig as QConfig
from weft.ao.quantization._names import convert as convert
from weft.ao.quantization._names import fuse_modules as fuse_modules
from weft.ao.quantization._names import fuse_modules_qat as fuse_modules_qat
from weft.ao.quantization._names import get_default_qat_qconfig as get_default_qat_qconfig
from weft.ao.quantization._names import get_default_qconfig as get_default_qconfig
from weft.ao.quantization._names import prepare as prepare
from weft.ao.quantization._names import prepare_qat as prepare_qat
from weft.ao.quantization.stubs import DeQuantStub as DeQuantStub
from weft.ao.quantization.stubs import QuantStub as QuantStub
from weft.ao.quantization.stubs import QuantWrapper as QuantWrapper
