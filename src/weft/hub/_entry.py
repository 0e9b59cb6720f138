"""Entry points: the public functions of a repository's `hubconf.py`."""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from types import ModuleType

from weft._base.types import AnyCallable, Arg, Result
from weft.errors import HubError, ValueRangeError
from weft.hub._repository import Trust, cached

MODULE_HUBCONF = "hubconf.py"
VAR_DEPENDENCY = "dependencies"
"""The name in a `hubconf.py` of the list of packages that it needs."""


def list(
    github: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: Trust = "check",
    verbose: bool = True,
) -> builtins.list[str]:
    """The names of a repository's entry points: the public callables in its `hubconf.py`.

    The arguments are those of `load`.
    """
    folder = cached(
        github, force_reload=force_reload, trust_repo=trust_repo, verbose=verbose, skip_validation=skip_validation
    )
    with _hubconf(folder) as module:
        return [name for name in dir(module) if callable(getattr(module, name)) and not name.startswith("_")]


def help(
    github: str,
    model: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: Trust = "check",
) -> str | None:
    """The docstring of the entry point `model`. The arguments are those of `load`."""
    folder = cached(
        github, force_reload=force_reload, trust_repo=trust_repo, verbose=True, skip_validation=skip_validation
    )
    with _hubconf(folder) as module:
        return _entry(module, model).__doc__


def load(
    repo_or_dir: str,
    model: str,
    *args: Arg,
    source: str = "github",
    trust_repo: Trust = "check",
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **kwargs: Arg,
) -> Result:
    """Call the entry point `model` of a repository with `args` and `kwargs`. This runs the repository's code.

    With `source="local"`, `repo_or_dir` is the path of a folder with a `hubconf.py`. With `source="github"` it is
    `owner/name` or `owner/name:ref`, where `ref` is a branch, a tag or a commit; the default is `main`, or `master`.
    The archive is downloaded into `get_dir()` unless it is there; `force_reload` downloads it again, and `verbose`
    tells if a cached copy is used. `skip_validation` skips the request to GitHub that checks that the ref belongs to
    the repository and not to a fork.

    `trust_repo="check"` asks the user about repositories that are not in the list of trusted ones, False about all
    repositories, and True about none. Repositories that are accepted are added to the list.

    Raises `HubError` for missing dependencies, a missing entry point or an untrusted repository, and `DownloadError`
    for a failed download.
    """
    source = source.lower()
    if source not in ("github", "local"):
        raise ValueRangeError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "github":
        repo_or_dir = cached(
            repo_or_dir,
            force_reload=force_reload,
            trust_repo=trust_repo,
            verbose=verbose,
            skip_validation=skip_validation,
        )
    with _hubconf(repo_or_dir) as module:
        return _entry(module, model)(*args, **kwargs)


@contextmanager
def _hubconf(folder: str | os.PathLike[str]) -> Iterator[ModuleType]:
    """The module. Its folder is on the import path while the block runs."""
    folder = os.fspath(folder)
    sys.path.insert(0, folder)
    try:
        spec = spec_from_file_location(MODULE_HUBCONF, os.path.join(folder, MODULE_HUBCONF))
        assert spec is not None, "the name ends in .py"
        assert spec.loader is not None, "the name ends in .py"
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(folder)


def _entry(module: ModuleType, model: str) -> AnyCallable:
    if not isinstance(model, str):
        raise ValueRangeError("Invalid input: model should be a string of function name")
    missing = [name for name in getattr(module, VAR_DEPENDENCY, None) or () if not _is_installed(name)]
    if missing:
        raise HubError(f"Missing dependencies: {', '.join(missing)}")
    function = getattr(module, model, None)
    if not callable(function):
        raise HubError(f"Cannot find callable {model} in hubconf")
    return function


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False
