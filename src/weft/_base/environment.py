"""What may be shown of environment variables: reports and logs are read by others than those who set them."""

from __future__ import annotations

import re

REDACTED = "<redacted>"
_SECRET = re.compile("KEY|TOKEN|SECRET|PASS|_PWD|CRED|AUTH", re.IGNORECASE)
_USERINFO = re.compile("(?<=://)[^/@\\s]+(?=@)")  # in an address


def is_secret(name: str) -> bool:
    """Whether a variable may hold a secret, or lead to one, by its name."""
    return _SECRET.search(name) is not None


def shown(name: str, value: object) -> object:
    """What a text may show of a variable's value: nothing of a secret, and no name and password in an address."""
    if is_secret(name):
        return REDACTED
    return _USERINFO.sub(REDACTED, value) if isinstance(value, str) else value
