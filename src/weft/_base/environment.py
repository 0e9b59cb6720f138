"""Redaction of secrets in environment variables, for reports and logs that others read."""

from __future__ import annotations

import re

REDACTED = "<redacted>"
_SECRET = re.compile("KEY|TOKEN|SECRET|PASS|_PWD|CRED|AUTH", re.IGNORECASE)
_USERINFO = re.compile("(?<=://)[^/@\\s]+(?=@)")  # user and password in a URL


def is_secret(name: str) -> bool:
    """Whether a variable may contain a secret, or the path of one, judged by its name."""
    return _SECRET.search(name) is not None


def redacted(name: str, value: object) -> object:
    """The value without names and passwords in addresses, or `REDACTED` if the variable may hold a secret."""
    if is_secret(name):
        return REDACTED
    return _USERINFO.sub(REDACTED, value) if isinstance(value, str) else value
