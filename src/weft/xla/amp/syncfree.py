"""`torch_xla.amp.syncfree`: optimizers whose step a scaler skips without waiting. Here these are the usual ones."""

from __future__ import annotations

from weft.optim import SGD as SGD
from weft.optim import Adam as Adam
from weft.optim import AdamW as AdamW
