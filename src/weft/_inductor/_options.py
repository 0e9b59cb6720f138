"""The options that `weft.compile(mode=..., options=...)` accepts under PyTorch's names."""

from __future__ import annotations

from typing import Any

from weft._inductor import config
from weft.errors import OutOfRangeError


def _modes() -> dict[str, dict[str, Any]]:
    tuned = {"max_autotune": True, "coordinate_descent_tuning": True}
    careful = {"fallback_by_default": True, "selective_decompose": True, "use_dce": False, "allow_buffer_reuse": False}
    return {
        "default": {},
        "lite": careful,
        "reduce-overhead": {"triton.cudagraphs": True},
        "max-autotune-no-cudagraphs": tuned,
        "max-autotune": {**tuned, "triton.cudagraphs": True},
    }


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
    """The options that a mode stands for, or those of all modes by their names."""
    del dynamic
    modes = _modes()
    if mode is None:
        return modes
    if mode not in modes:
        raise OutOfRangeError(f"Unrecognized mode={mode}, should be one of: {', '.join(modes)}")
    return modes[mode]


def list_options() -> list[str]:
    """The names of all options."""
    return sorted(config.get_config_copy())  # pyright: ignore[reportAttributeAccessIssue]
