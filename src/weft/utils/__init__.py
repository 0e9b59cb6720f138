"""Data loading, checkpointing, event files, and other helpers."""

from weft.utils import checkpoint as checkpoint
from weft.utils import data as data
from weft.utils import dlpack as dlpack
