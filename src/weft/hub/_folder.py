"""The folder of downloads."""

from __future__ import annotations

import os
import warnings

ENV_TORCH_HOME = "TORCH_HOME"
ENV_XDG_CACHE_HOME = "XDG_CACHE_HOME"
DEFAULT_CACHE_DIR = "~/.cache"


class _HubFolder:
    """The folder given to `set_dir`, for the whole process."""

    folder: str | None = None


def get_dir() -> str:
    """The folder of downloaded repositories; its folder `checkpoints` has the weights.

    Without `set_dir` it is `hub` in the first of these: `$WEFT_HOME`, `$TORCH_HOME`, `$XDG_CACHE_HOME/weft`,
    `~/.cache/weft`. The variables are read in every call.
    """
    if os.environ.get("TORCH_HUB"):
        warnings.warn("TORCH_HUB is deprecated, please use env TORCH_HOME instead", stacklevel=2)
    return _HubFolder.folder if _HubFolder.folder is not None else os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Keep downloads in this folder from now on. It is created when it is needed."""
    _HubFolder.folder = os.path.expanduser(d)


def _get_torch_home() -> str:
    """The folder of all downloads, in which that of `get_dir` is; libraries ask for it by this name."""
    cache = os.environ.get(ENV_XDG_CACHE_HOME, DEFAULT_CACHE_DIR)
    default = os.environ.get(ENV_TORCH_HOME, os.path.join(cache, "weft"))
    return os.path.expanduser(os.environ.get("WEFT_HOME", default))
