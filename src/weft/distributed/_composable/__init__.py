"""Functions that change a module in place, under PyTorch's older path."""

from weft.distributed._composable.replicate import replicate as replicate
