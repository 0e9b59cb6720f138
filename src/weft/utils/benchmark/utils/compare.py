"""Tables, under PyTorch's import path."""

from weft.utils.benchmark._compare import Colorize as Colorize
from weft.utils.benchmark._compare import Compare as Compare
