"""Redaction of secrets in environment variables, for reports and logs that others read."""

from __future__ import annotations

import re

REDACTED = "<redacted>"
_SECRET = re.compile("KEY|TOKEN|SECRET|PASSW(OR)?D|CREDENTIAL", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether a variable may hold a secret, or lead to one, by its name."""
    return _SECRET.search(name) is not None


def redacted(name: str, value: object) -> object:
    """The value, or `REDACTED` if the variable may hold a secret."""
    return REDACTED if is_secret(name) else value
