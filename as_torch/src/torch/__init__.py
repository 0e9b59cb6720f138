"""`torch` in an environment of Weft: who imports it, or a module below it, gets Weft's."""

from pathlib import Path

from weft._base.torch_alias import replace_package

_FOLDER = Path(__file__).parent

if _strays := sorted(file.name for pattern in ("_C*", "lib") for file in _FOLDER.glob(pattern)):
    raise ImportError(
        f"{_FOLDER} has files of PyTorch ({', '.join(_strays)}) among those of Weft, so one was installed over the "
        "other. Uninstall both (pip uninstall torch, until there is none), delete the folder, and install one of them"
    )
replace_package()
