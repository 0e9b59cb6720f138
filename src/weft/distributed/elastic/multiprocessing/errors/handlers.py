"""The default error handler of `record`."""

from weft.distributed.elastic.multiprocessing.errors.error_handler import ErrorHandler


def get_error_handler() -> ErrorHandler:
    """The handler that writes the error file of this process."""
    return ErrorHandler()
