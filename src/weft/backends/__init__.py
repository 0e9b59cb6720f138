"""PyTorch's switches of its libraries. Operators use XLA here; each module says what its switches mean for that."""

from weft.backends import cpu as cpu
from weft.backends import cuda as cuda
from weft.backends import cudnn as cudnn
from weft.backends import cusparselt as cusparselt
from weft.backends import kleidiai as kleidiai
from weft.backends import mha as mha
from weft.backends import miopen as miopen
from weft.backends import mkl as mkl
from weft.backends import mkldnn as mkldnn
from weft.backends import mps as mps
from weft.backends import nnpack as nnpack
from weft.backends import openmp as openmp
from weft.backends import opt_einsum as opt_einsum
from weft.backends import quantized as quantized
from weft.backends import xnnpack as xnnpack
from weft.backends._flags import allow_nonbracketed_mutation as __allow_nonbracketed_mutation  # noqa: F401
from weft.backends._flags import fp32_precision as fp32_precision
