"""`Categorical`, under PyTorch's import path."""

from weft.distributions._categorical import Categorical as Categorical
