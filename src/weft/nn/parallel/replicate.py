"""Replicas of a module."""

from weft.nn.parallel.scatter_gather import replicate as replicate
