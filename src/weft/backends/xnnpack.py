"""XNNPACK, which XLA does not use explicitly."""

from __future__ import annotations

enabled = False
