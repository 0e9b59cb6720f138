"""Copies of a function or a program, which are started, monitored and ended as a unit."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.distributed.elastic.multiprocessing._binary import SubprocessContext as SubprocessContext
from weft.distributed.elastic.multiprocessing._context import PContext as PContext
from weft.distributed.elastic.multiprocessing._context import RunProcsResult as RunProcsResult
from weft.distributed.elastic.multiprocessing._function import MultiprocessContext as MultiprocessContext
from weft.distributed.elastic.multiprocessing._logs import DefaultLogsSpecs as DefaultLogsSpecs
from weft.distributed.elastic.multiprocessing._logs import LogsDest as LogsDest
from weft.distributed.elastic.multiprocessing._logs import LogsSpecs as LogsSpecs
from weft.distributed.elastic.multiprocessing._signals import SignalException as SignalException
from weft.distributed.elastic.multiprocessing._start import start_processes as start_processes
from weft.distributed.elastic.multiprocessing._std import Std as Std
from weft.distributed.elastic.multiprocessing._std import to_map as to_map
from weft.distributed.elastic.multiprocessing.errors import ChildFailedError as ChildFailedError
from weft.distributed.elastic.multiprocessing.errors import ProcessFailure as ProcessFailure

_serve_below(__name__)
