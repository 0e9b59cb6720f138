"""PyTorch's own tests of its distributed packages, as the wheel carries them, run against Weft.

`make oracle-distributed` runs them: the sources are read where PyTorch is installed, and every import of `torch` in
them gives Weft. Each test runs in processes of its own. `internals.py` lists those that are about PyTorch's inside.
"""
