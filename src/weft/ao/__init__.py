"""Names of PyTorch's quantization for programs that import them."""

from weft.ao import quantization as quantization
