"""Levels of what the package logs, under PyTorch's import path."""

from weft._base.logs import set_logs as set_logs
