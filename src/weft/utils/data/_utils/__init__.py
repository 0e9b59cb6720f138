"""The parts of the loader: collation, fetching, worker processes and shared memory."""

from weft._import_paths.finder import serve_below as _serve_below

# What loaders of libraries, which derive from PyTorch's, read besides.
HAS_NUMPY = True
MP_STATUS_CHECK_INTERVAL = 5.0
"""Seconds after which PyTorch's loaders look at their workers."""
python_exit_status = False
"""Whether the interpreter ends."""

_serve_below(__name__)
