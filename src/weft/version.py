"""Versions of the package. Those of GPU libraries are None, since jaxlib determines them."""

from __future__ import annotations

from weft import __version__ as __version__

weft = __version__.partition("+weft.")[2]
"""The version of this package. `__version__` begins with that of the release of PyTorch that it follows."""

debug = False
cuda: str | None = None
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
git_version = "Unknown"
