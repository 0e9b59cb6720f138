"""Losses whose classes are split."""

from weft.distributed.tensor._split_classes import loss_parallel as loss_parallel
