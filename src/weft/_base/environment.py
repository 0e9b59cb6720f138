"""What may be shown of environment variables: reports and logs are read by others than those who set them."""

from __future__ import annotations

import re

REDACTED = "<redacted>"
_SECRET = re.compile("KEY|TOKEN|SECRET|PASSW(OR)?D|CREDENTIAL", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether a variable may hold a secret, or lead to one, by its name."""
    return _SECRET.search(name) is not None


def redacted(name: str, value: object) -> object:
    """What a text may show of a variable's value."""
    return REDACTED if is_secret(name) else value
