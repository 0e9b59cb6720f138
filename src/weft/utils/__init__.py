"""Helpers around training."""

from weft.utils import data as data
