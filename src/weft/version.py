"""Versions, as programs ask for them. The GPU libraries are jaxlib's business, so none is named."""

from __future__ import annotations

from weft import __version__ as __version__

debug = False
cuda: str | None = None
hip: str | None = None
xpu: str | None = None
git_version = "Unknown"
