"""`FisherSnedecor`, under PyTorch's import path."""

from weft.distributions._gamma import FisherSnedecor as FisherSnedecor
