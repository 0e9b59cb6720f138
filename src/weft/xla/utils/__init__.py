"""`torch_xla.utils`."""

from weft.xla.utils import serialization as serialization
from weft.xla.utils import utils as utils
