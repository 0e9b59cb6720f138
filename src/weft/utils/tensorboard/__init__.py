"""Event files for TensorBoard. Needs the package: `pip install weft[tensorboard]`."""

from weft.utils.tensorboard._protos import RecordWriter as RecordWriter
from weft.utils.tensorboard.writer import FileWriter as FileWriter
from weft.utils.tensorboard.writer import SummaryWriter as SummaryWriter
