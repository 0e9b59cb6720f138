"""`torch_xla.amp`: mixed precision on XLA devices."""

from weft.xla._amp import GradScaler as GradScaler
from weft.xla._amp import autocast as autocast
from weft.xla.amp import syncfree as syncfree
