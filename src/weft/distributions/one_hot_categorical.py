"""`OneHotCategorical`, under PyTorch's import path."""

from weft.distributions._categorical import OneHotCategorical as OneHotCategorical
from weft.distributions._categorical import OneHotCategoricalStraightThrough as OneHotCategoricalStraightThrough
