"""Distances, under PyTorch's import path."""

from weft.nn._shape import CosineSimilarity as CosineSimilarity
from weft.nn._shape import PairwiseDistance as PairwiseDistance
