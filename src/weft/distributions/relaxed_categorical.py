"""`ExpRelaxedCategorical`, under PyTorch's import path."""

from weft.distributions._relaxed import ExpRelaxedCategorical as ExpRelaxedCategorical
from weft.distributions._relaxed import RelaxedOneHotCategorical as RelaxedOneHotCategorical
