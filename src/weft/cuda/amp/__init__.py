"""Older spellings of `weft.amp` for "cuda"."""

from weft.cuda.amp._older import GradScaler as GradScaler
from weft.cuda.amp._older import autocast as autocast
from weft.cuda.amp._older import custom_bwd as custom_bwd
from weft.cuda.amp._older import custom_fwd as custom_fwd
