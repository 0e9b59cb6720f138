"""The host's processors."""

from __future__ import annotations

import platform
from pathlib import Path


def get_cpu_capability() -> str:
    """The widest vector instructions of the CPU that XLA may use: "AVX512", "AVX2" or "DEFAULT"."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "DEFAULT"
    names = next((set(line.split()) for line in text.splitlines() if line.startswith("flags")), set[str]())
    if platform.machine() not in ("x86_64", "AMD64") or "avx2" not in names:
        return "DEFAULT"
    return "AVX512" if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= names else "AVX2"
