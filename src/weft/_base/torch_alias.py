"""`torch` as another name of this package: an import hook, for programs and libraries that are written for PyTorch."""

from __future__ import annotations

import importlib.metadata
import os
import re
import site
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from weft._base.exports import children, nearest
from weft._base.own_names import is_own_module
from weft.errors import MissingNameError, SettingError
from weft_as_torch import ENVIRONMENT, ON, PACKAGES, Finder

_SITE_FILE = "weft_as_torch.pth"


def as_torch() -> None:
    """Let `torch`, and every module below it, be Weft in this process, whether PyTorch is installed or not.

    To be called before anything imports `torch`, as in the first cell of a notebook; a script is rather run by
    `weft script.py`. Libraries that are imported afterwards compute with Weft, too, and so do processes that this one
    starts. `RuntimeError` if PyTorch has been imported already.
    """
    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    foreign = sorted(name for name in sys.modules if name.partition(".")[0] in PACKAGES)
    if foreign:
        origin = getattr(sys.modules[foreign[0]], "__file__", None) or "of unknown origin"
        raise SettingError(
            f"{foreign[0]} has been imported already, from {origin}, so it cannot be Weft in this process; call "
            "weft.as_torch() before anything imports it (in a notebook: restart the kernel), or run `weft script.py`"
        )
    os.environ[ENVIRONMENT] = "1"
    if not _is_inherited():
        warnings.warn(
            "torch is Weft in this process, but not in those that it starts, such as workers of a loader: Weft is "
            "found by PYTHONPATH and not installed; install it in this environment (pip install, also --editable)",
            stacklevel=2,
        )
    _install()


def replace_package() -> None:
    """Be the module `torch` that is being imported, the one of the distribution in `as_torch/`.

    No variable tells it to processes that this one starts: that distribution is in each of the environment.
    """
    del sys.modules["torch"]
    _install()


def _install() -> None:
    sys.meta_path.insert(0, Finder())
    import_module("torch")  # some libraries ask whether it is imported before they take tensors


def _is_inherited() -> bool:
    """Whether Python reads the file by which the processes that this one starts have the alias, too."""
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return not sys.flags.no_site and any(Path(folder, _SITE_FILE).is_file() for folder in folders)


def own_name(module: str) -> str:
    """The name in this package of a module of PyTorch's; others as they are."""
    first, dot, rest = module.partition(".")
    return PACKAGES.get(first, first) + dot + rest


def rename_missing(error: BaseException) -> None:
    """Let the error of a `from torch import name`, which Python itself has made, say what is missing where."""
    if not isinstance(error, ImportError) or isinstance(error, ModuleNotFoundError):
        return
    module, match = sys.modules.get(error.name or ""), re.match(r"cannot import name '(\w+)'", error.msg)
    if module is None or match is None or not is_own_module(module.__name__):
        return
    lacking = MissingNameError(module.__name__, match[1], lambda: nearest(match[1], dir(module)))
    error.msg = f"cannot import name {match[1]!r}: {lacking}"
    error.name_from = None  # pyright: ignore[reportAttributeAccessIssue]  so that the interpreter names no other one


def spec_of(fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """The spec of one of PyTorch's modules: this package's, under the other name. None if there is no such module."""
    name = own_name(fullname)
    importer = _importer()
    if fullname.startswith(_XLA) and not _wants_xla(importer):
        if importer == _QUERY:
            return None
        raise ModuleNotFoundError(
            f"No module named {fullname!r}: Weft has it for programs that ask for it, by USE_TORCH_XLA=1 in the "
            "environment, by importing it in their main file, or by importing weft_xla before",
            name=fullname,
        )
    module = sys.modules.get(name)
    if path is None and "." in name:  # `functorch`, whose module is within a package here
        path = import_module(name.rpartition(".")[0]).__path__
    own = PathFinder.find_spec(name, path) if module is None else module.__spec__
    if module is not None or own is not None:
        spec = ModuleSpec(fullname, _Loader(name), origin=own and own.origin)
        spec.submodule_search_locations = own and own.submodule_search_locations
        return spec
    if importer == _QUERY:
        return None
    parent, _, last = fullname.rpartition(".")
    text = f"No module named {fullname!r}: Weft does not have it"
    if near := nearest(last, children(sys.modules[parent])):
        text += f"; the nearest module is {f'{parent}.{near}'!r}"
    raise ModuleNotFoundError(text, name=fullname)


_XLA = "torch_xla"
_QUERY = "importlib.util"
"""The importer of what somebody asks for by `importlib.util.find_spec`, which is no import."""


def _importer() -> str:
    """The name of the module in which the import statement stands that looks for a module now."""
    frame = sys._getframe(3)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name not in ("importlib", "importlib._bootstrap"):
            return name
        frame = frame.f_back
    return ""


def _wants_xla(importer: str = "") -> bool:
    """Whether the program asks for `torch_xla`, which libraries would take for a TPU.

    By its environment, by `import weft_xla`, or by an import in its main file. Libraries are told by the environment,
    from then on, that this is no TPU of theirs, unless it says otherwise.
    """
    if os.environ.get("USE_TORCH_XLA", "").lower() in ON or PACKAGES[_XLA] in sys.modules:
        return True
    return importer in ("__main__", "__mp_main__")


def distributions(context: object) -> list[importlib.metadata.Distribution]:
    """PyTorch's distributions, or the one that is asked for; none where somebody looks into folders, as pip does.

    Nor one that is installed, as `as_torch/` is: its own metadata say more.
    """
    name = getattr(context, "name", None)
    wanted = name and name.lower().replace("-", "_")
    if "path" in getattr(context, "__dict__", ()):
        return []
    packages = [package for package in PACKAGES if package != _XLA or _wants_xla()]
    return [_Distribution(package) for package in packages if wanted in (None, package) and not _installed(package)]


def _installed(package: str) -> bool:
    installed = importlib.metadata.distributions(name=package, path=sys.path)
    return any("+weft" in distribution.version for distribution in installed)


class _Loader(Loader):
    """Loads a module of this package under another name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._name)
        self._spec = module.__spec__
        return module

    def get_code(self, fullname: str) -> CodeType | None:
        """The code of the module, which `python -m torch.distributed.run` runs as the program."""
        spec = find_spec(own_name(fullname))
        loader: Any = spec and spec.loader
        return loader.get_code(spec.name) if spec and hasattr(loader, "get_code") else None

    def exec_module(self, module: ModuleType) -> None:
        alias = module.__spec__.name if module.__spec__ else ""
        module.__spec__ = self._spec  # the import system has given it that of the other name
        if alias == "torch":
            import_module("weft._import_paths.renaming").use_names_of_torch()
        elif alias == _XLA:
            os.environ.setdefault("USE_TORCH_XLA", "0")  # accelerate and transformers would take it for a TPU
            for name in [name for name in sys.modules if name.startswith(f"{self._name}.")]:
                sys.modules.setdefault(alias + name.removeprefix(self._name), sys.modules[name])


class _Distribution(importlib.metadata.Distribution):
    """What `importlib.metadata` tells of a package of PyTorch's."""

    def __init__(self, package: str) -> None:
        self._package = package

    def read_text(self, filename: str) -> str | None:
        header = f"Metadata-Version: 2.1\nName: {self._package}\nVersion: {import_module('weft').__version__}\n"
        return {"METADATA": header, "top_level.txt": f"{self._package}\n"}.get(filename)

    def locate_file(self, path: str | os.PathLike[str]) -> Path:
        return Path(__file__).parents[2] / path
