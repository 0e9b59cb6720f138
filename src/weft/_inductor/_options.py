"""The options that `weft.compile(mode=..., options=...)` accepts under PyTorch's names."""

from __future__ import annotations

from typing import Any

from weft._inductor import config
from weft.errors import OutOfRangeError

_TUNED = {"max_autotune": True, "coordinate_descent_tuning": True}
# no cell: it is not written to
_MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "lite": {"fallback_by_default": True, "selective_decompose": True, "use_dce": False, "allow_buffer_reuse": False},
    "reduce-overhead": {"triton.cudagraphs": True},
    "max-autotune-no-cudagraphs": _TUNED,
    "max-autotune": {**_TUNED, "triton.cudagraphs": True},
}


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
    """The options that a mode stands for, or those of all modes by their names."""
    del dynamic
    if mode is None:
        return {name: dict(options) for name, options in _MODES.items()}
    if mode not in _MODES:
        raise OutOfRangeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    return dict(_MODES[mode])


def list_options() -> list[str]:
    """The names of all options."""
    return sorted(config.get_config_copy())  # pyright: ignore[reportAttributeAccessIssue]
