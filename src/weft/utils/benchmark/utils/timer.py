"""The timer, under PyTorch's import path."""

from weft.utils.benchmark._timer import Language as Language
from weft.utils.benchmark._timer import Timer as Timer
from weft.utils.benchmark._timer import timer as timer
