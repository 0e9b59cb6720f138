"""Python's `multiprocessing`, and functions that run a function in several processes.

Nothing here imports the tensor library. Tensors are copied when they go through queues and pipes.
"""

from multiprocessing import __all__ as __all__

from weft._base.exports import on_first_use as _on_first_use
from weft._import_paths.finder import serve_below as _serve_below

__getattr__, __dir__ = _on_first_use(
    __name__,
    {
        "multiprocessing": tuple(__all__),
        "weft.errors": ("ProcessException", "ProcessExitedException", "ProcessRaisedException"),
        "weft.multiprocessing._processes": ("ProcessContext", "SpawnContext", "spawn", "start_processes"),
        "weft.multiprocessing._threads": ("_get_thread_name", "_set_thread_name"),
        "weft.multiprocessing._sharing": ("get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy"),
    },
)

_serve_below(__name__)
