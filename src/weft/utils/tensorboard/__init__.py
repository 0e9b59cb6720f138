"""Event files for TensorBoard. They need the package: `pip install weft[tensorboard]`.

That package writes the files. Their contents are made here, with PyTorch's tags, fields and defaults, because most of
TensorBoard's own functions need TensorFlow, or write something else (histograms of 30 equal buckets, runs with equal
hyperparameters grouped). tensorboardX has most of it, but changes tags, delays events at `flush`, cannot reopen a file,
and imports PyTorch if it is installed (4 s).
"""

from weft.utils.tensorboard._protos import RecordWriter as RecordWriter
from weft.utils.tensorboard.writer import FileWriter as FileWriter
from weft.utils.tensorboard.writer import SummaryWriter as SummaryWriter
