"""Older spellings of `weft.amp` for "cpu"."""

from weft.cpu.amp.autocast_mode import autocast as autocast
from weft.cpu.amp.grad_scaler import GradScaler as GradScaler
