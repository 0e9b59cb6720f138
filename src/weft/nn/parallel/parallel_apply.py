"""Modules applied to the parts of a batch."""

from weft.nn.parallel.scatter_gather import parallel_apply as parallel_apply
