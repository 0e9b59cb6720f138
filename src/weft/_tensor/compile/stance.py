"""What compiled functions do in this process: as usual, or only what they have been captured for, or nothing."""

from __future__ import annotations

from functools import wraps

from weft._base.state import ambient
from weft._base.types import AnyCallable, Result
from weft.errors import OptionError

STANCES = (
    "default",
    "force_eager",
    "eager_on_recompile",
    "fail_on_recompile",
    "eager_then_compile",
    "aot_eager_then_compile",
)


# no cell: read before it is decided whether to replay
class Stance:
    """The process's setting."""

    current = "default"


class set_stance:
    """Set what functions of `weft.compile` do: from now on, within a block, or in calls of a decorated function.

    "force_eager": they are run as if they were not compiled. "eager_on_recompile": so are calls for which they have not
    been captured; "fail_on_recompile": such calls raise `RuntimeError`. With all others they are captured as usual.
    """

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: object = None
    ) -> None:
        del skip_guard_eval_unsafe, force_backend
        if stance not in STANCES:
            raise OptionError(f"invalid torch.compile stance {stance!r}; choose one of {', '.join(STANCES)}")
        if ambient().capture is not None:
            raise OptionError("set_stance cannot be called in a function that is being compiled; call it before")
        self._stance = stance
        self._before, Stance.current = Stance.current, stance

    def __enter__(self) -> None:
        Stance.current = self._stance

    def __exit__(self, *exception: object) -> None:
        Stance.current = self._before

    def __call__(self, function: AnyCallable) -> AnyCallable:
        """The function, with this stance in its calls only."""
        Stance.current = self._before
        stance = self._stance

        @wraps(function)
        def wrapped(*args: object, **kwargs: object) -> Result:
            with set_stance(stance):
                return function(*args, **kwargs)

        return wrapped
