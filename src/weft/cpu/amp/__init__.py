"""Older spellings of `weft.amp` for "cpu"."""

from weft.cpu.amp._older import GradScaler as GradScaler
from weft.cpu.amp._older import autocast as autocast
