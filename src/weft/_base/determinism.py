"""Whether results were asked to be the same in every run, and operators that give no such promise."""

from __future__ import annotations

from weft._base.site import warn_user
from weft.errors import OptionError


class Determinism:
    """What the process was asked for: 0 nothing, 1 to be warned, 2 to be refused what is not determined."""

    level = 0


def refuse_undetermined(kernel: str) -> None:
    """`RuntimeError`, or a warning, where determinism was asked for: the result may depend on the order of writes."""
    if not Determinism.level:
        return
    text = f"{kernel} does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms"
    if Determinism.level == 1:
        warn_user(f"{text}(True, warn_only=True)'.")
        return
    raise OptionError(
        f"{text}(True)'. You can turn off determinism just for this operation, or you can use the 'warn_only=True' "
        "option, if that's acceptable for your application."
    )
