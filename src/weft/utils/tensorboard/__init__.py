"""Event files for TensorBoard. Needs the package: `pip install weft[tensorboard]`.

Files and messages are that package's. What is put into them is made here, with PyTorch's tags, fields and defaults:
TensorBoard's own functions need TensorFlow for most of it, or write something else (histograms of 30 equal buckets,
runs of equal hyperparameters in groups). tensorboardX, which has most of it, changes tags, keeps events back at
`flush`, cannot reopen a file, and loads PyTorch where that is installed (4 s).
"""

from weft.utils.tensorboard._protos import RecordWriter as RecordWriter
from weft.utils.tensorboard.writer import FileWriter as FileWriter
from weft.utils.tensorboard.writer import SummaryWriter as SummaryWriter
