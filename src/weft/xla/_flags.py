"""Environment variables of `weft.xla`, read when they are needed, as programs set them before their first step."""

from __future__ import annotations

import os

from weft.errors import SettingError


def flag(name: str, default: bool = False) -> bool:
    """Whether a variable is set to something else than `0`, `false`, `off` or `no`; `default` if it is not set."""
    text = os.environ.get(name, "")
    return default if not text else text.lower() not in {"0", "false", "off", "no"}


def number(name: str, default: float) -> float:
    """The number in a variable; `RuntimeError` if it is none."""
    text = os.environ.get(name, "")
    try:
        return float(text) if text else default
    except ValueError:
        raise SettingError(f"{name}={text}: expected a number") from None
