"""PyTorch's switches of its libraries. Operators use XLA here, so most switches are accepted and have no effect."""

from weft.backends import cuda as cuda
from weft.backends import cudnn as cudnn
from weft.backends import mkldnn as mkldnn
from weft.backends import mps as mps
