"""The default timeout of groups."""

from __future__ import annotations

from datetime import timedelta

default_pg_timeout = timedelta(minutes=30)
