"""How long groups wait for their ranks unless told otherwise."""

from __future__ import annotations

from datetime import timedelta

default_pg_timeout = timedelta(minutes=30)
