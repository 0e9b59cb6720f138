"""Error files: written by a worker that fails, and read by its parent processes."""

from weft.distributed.elastic.multiprocessing.errors._failure import ChildFailedError as ChildFailedError
from weft.distributed.elastic.multiprocessing.errors._failure import ProcessFailure as ProcessFailure
from weft.distributed.elastic.multiprocessing.errors._record import record as record
from weft.distributed.elastic.multiprocessing.errors.error_handler import ErrorHandler as ErrorHandler
from weft.distributed.elastic.multiprocessing.errors.handlers import get_error_handler as get_error_handler
