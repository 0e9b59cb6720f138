"""Loggers of programs that a launcher starts."""

from __future__ import annotations

import logging
import os

from weft._base.site import calling_frame
from weft.distributed.elastic.utils.log_level import get_log_level


def get_logger(name: str | None = None) -> logging.Logger:
    """The logger of a name, by default the calling module's, at the level in the environment variable LOGLEVEL."""
    logger = logging.getLogger(name or calling_frame(1).f_globals["__name__"])
    logger.setLevel(os.environ.get("LOGLEVEL", get_log_level()))
    return logger
