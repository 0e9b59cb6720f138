"""Older spellings of `weft.amp` for "cuda"."""

from weft.cuda.amp.autocast_mode import autocast as autocast
from weft.cuda.amp.autocast_mode import custom_bwd as custom_bwd
from weft.cuda.amp.autocast_mode import custom_fwd as custom_fwd
from weft.cuda.amp.grad_scaler import GradScaler as GradScaler
