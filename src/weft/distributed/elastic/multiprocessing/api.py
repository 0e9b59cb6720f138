"""The names of this package, under PyTorch's import path."""

from weft.distributed.elastic.multiprocessing._binary import SubprocessContext as SubprocessContext
from weft.distributed.elastic.multiprocessing._context import PContext as PContext
from weft.distributed.elastic.multiprocessing._context import RunProcsResult as RunProcsResult
from weft.distributed.elastic.multiprocessing._function import MultiprocessContext as MultiprocessContext
from weft.distributed.elastic.multiprocessing._logs import DefaultLogsSpecs as DefaultLogsSpecs
from weft.distributed.elastic.multiprocessing._logs import LogsDest as LogsDest
from weft.distributed.elastic.multiprocessing._logs import LogsSpecs as LogsSpecs
from weft.distributed.elastic.multiprocessing._signals import SignalException as SignalException
from weft.distributed.elastic.multiprocessing._std import Std as Std
from weft.distributed.elastic.multiprocessing._std import to_map as to_map
from weft.distributed.elastic.multiprocessing.errors import ProcessFailure as ProcessFailure
