"""The setting for deterministic results, and the refusal of operators that are not deterministic."""

from __future__ import annotations

from weft._base.cell import Cell
from weft._base.site import warn_user
from weft.errors import OptionError

DETERMINISM = Cell("the determinism of algorithms", 0)
"""0 is off, 1 warns about operators that are not deterministic, 2 refuses them."""


def refuse_undetermined(kernel: str) -> None:
    """If determinism was requested, raise `RuntimeError` or warn: the result may depend on the order of writes."""
    if not DETERMINISM.get():
        return
    text = f"{kernel} does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms"
    if DETERMINISM.get() == 1:
        warn_user(f"{text}(True, warn_only=True)'.")
        return
    raise OptionError(
        f"{text}(True)'. You can turn off determinism just for this operation, or you can use the 'warn_only=True' "
        "option, if that's acceptable for your application."
    )
