"""Switches of the libraries behind PyTorch's operators. XLA is behind these, so most are accepted and left at that."""

from weft.backends import cuda as cuda
from weft.backends import cudnn as cudnn
from weft.backends import mkldnn as mkldnn
from weft.backends import mps as mps
