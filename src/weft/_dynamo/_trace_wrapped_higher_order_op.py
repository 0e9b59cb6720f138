"""What PyTorch needs for masks given as functions."""

from contextlib import nullcontext


class TransformGetItemToIndex(nullcontext[None]):
    """A block that changes nothing: `vmap` indexes by tensors without it."""
