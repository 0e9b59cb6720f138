"""Versions of the package. Those of GPU libraries are None, since jaxlib determines them."""

from __future__ import annotations

from weft import __version__ as __version__

debug = False
cuda: str | None = None
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
git_version = "Unknown"
