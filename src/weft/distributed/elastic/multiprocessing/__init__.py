"""Copies of a function or a program, which are started, monitored and ended as a unit."""

from weft.distributed.elastic.multiprocessing._start import start_processes as start_processes
from weft.distributed.elastic.multiprocessing.api import DefaultLogsSpecs as DefaultLogsSpecs
from weft.distributed.elastic.multiprocessing.api import LogsDest as LogsDest
from weft.distributed.elastic.multiprocessing.api import LogsSpecs as LogsSpecs
from weft.distributed.elastic.multiprocessing.api import MultiprocessContext as MultiprocessContext
from weft.distributed.elastic.multiprocessing.api import PContext as PContext
from weft.distributed.elastic.multiprocessing.api import ProcessFailure as ProcessFailure
from weft.distributed.elastic.multiprocessing.api import RunProcsResult as RunProcsResult
from weft.distributed.elastic.multiprocessing.api import SignalException as SignalException
from weft.distributed.elastic.multiprocessing.api import Std as Std
from weft.distributed.elastic.multiprocessing.api import SubprocessContext as SubprocessContext
from weft.distributed.elastic.multiprocessing.api import to_map as to_map
from weft.distributed.elastic.multiprocessing.errors import ChildFailedError as ChildFailedError
