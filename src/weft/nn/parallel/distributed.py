"""`DistributedDataParallel`, under PyTorch's import path."""

from weft._base.exports import on_first_use as _on_first_use

__getattr__, __dir__ = _on_first_use(
    __name__,
    {
        "weft.distributed._ddp": ("DistributedDataParallel",),
        "weft.distributed._ddp_log": ("_dump_DDP_relevant_env_vars",),
    },
)
