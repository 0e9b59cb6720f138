"""Limited-memory BFGS."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from weft._base.state import using
from weft._base.types import Result, SavedState
from weft._dispatch import apply
from weft._lazy.call import ONE, many
from weft._lazy.infer import call_of
from weft._lazy.value import Value
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor, operand, wrap
from weft._tensor.view import own
from weft.errors import OptionError, ValueRangeError
from weft.ops.optimizer import lbfgs_step
from weft.optim._fused import evaluated, filled
from weft.optim._line_search import Point, strong_wolfe
from weft.optim._optimizer import Group, Optimizer, Params
from weft.optim._options import require

if TYPE_CHECKING:
    from weft.optim._optimizer import Closure


class LBFGS(Optimizer):
    """Quasi-Newton steps from the last `history_size` changes of the gradient (Liu and Nocedal, 1989).

    `step` needs a closure, which computes the loss and the gradients. It is called up to `max_eval` times in up to
    `max_iter` iterations, each of which reads the loss and the gradients. There must be one group. `line_search_fn` is
    None or "strong_wolfe".
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        require("learning rate", lr)
        super().__init__(
            params,
            {
                "lr": lr,
                "max_iter": max_iter,
                "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
                "tolerance_grad": tolerance_grad,
                "tolerance_change": tolerance_change,
                "history_size": history_size,
                "line_search_fn": line_search_fn,
            },
        )
        if len(self.param_groups) != 1:
            raise ValueRangeError("LBFGS doesn't support per-parameter options (parameter groups)")

    def step(self, closure: Closure) -> Result:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Iterate; returns the loss before the first iteration."""
        group = self.param_groups[0]
        require("learning rate", float(group["lr"]))
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise OptionError("only 'strong_wolfe' is supported")
        state = self.state[group["params"][0]]  # state of all parameters, so that loading casts it to their type
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        objective = _Objective(group["params"], closure)
        with using(grad=False):
            loss = objective.loss()
            state["func_evals"] += 1
            gradient = objective.gradient()
            if not _peak(gradient) <= group["tolerance_grad"]:
                self._iterate(group, state, objective, Point(0.0, float(loss), gradient, 0.0))
        return loss

    def _needed_shapes(self, group: Group, param: Tensor) -> dict[str, tuple[int, ...]]:
        del param
        size = sum(p.numel() * (2 if p.dtype.is_complex else 1) for p in group["params"])
        return dict.fromkeys(("d", "prev_flat_grad"), (size,))

    def _iterate(self, group: Group, state: SavedState, objective: _Objective, here: Point) -> None:
        memory = _History(**{f.name: state[f.name] for f in fields(_History) if f.name in state})
        tolerance, evaluations = group["tolerance_change"], 1
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            first, rate = state["n_iter"] == 1, float(group["lr"])
            if first:
                memory = _History()
                rate *= min(1.0, 1.0 / float(here.gradient.abs().sum()))
            elif "al" not in state:
                state["al"] = [None] * group["history_size"]  # scratch space in PyTorch
            direction, slope = memory.direction(here.gradient, group["history_size"])
            memory.d, memory.t, memory.prev_flat_grad, memory.prev_loss = direction, rate, here.gradient, here.loss
            if slope > -tolerance:
                break
            line = _Line(objective, direction)
            last = iteration == group["max_iter"]
            here, calls = _advance(group, line, here, slope, rate, group["max_eval"] - evaluations, last)
            memory.t = here.t
            evaluations += calls
            state["func_evals"] += calls
            if (
                last
                or evaluations >= group["max_eval"]
                or _peak(here.gradient) <= group["tolerance_grad"]
                or abs(_peak(direction) * here.t) <= tolerance
                or abs(here.loss - memory.prev_loss) < tolerance
            ):
                break
        state.update(vars(memory))


def _advance(
    group: Group, line: _Line, here: Point, slope: float, rate: float, most: int, last: bool
) -> tuple[Point, int]:
    """Move along the line; returns the new point and the number of calls of the closure."""
    if group["line_search_fn"] is not None:
        point, calls = strong_wolfe(
            line, Point(0.0, here.loss, here.gradient, slope), rate, _peak(line.direction), most
        )
        line.move(point.t)
        return point, calls
    if last:  # the loss there would not be used
        line.move(rate)
        return Point(rate, here.loss, here.gradient, slope), 0
    return line(rate), 1


class _Objective:
    """A closure's loss as a function of the parameters, which are concatenated into one vector of reals."""

    def __init__(self, params: list[Tensor], closure: Closure) -> None:
        self.params = params
        self._closure = closure

    def loss(self) -> Result:
        """The loss at the current point; the closure also sets the gradient."""
        return evaluated(self._closure)

    def gradient(self) -> Tensor:
        """The gradient that the last call of the closure has set."""
        grads = [filled(param, 0.0) if param.grad is None else param.grad for param in self.params]
        return op.cat([_real(grad).reshape(-1) for grad in grads])


class _Line:
    """The objective along a direction, from the current point."""

    def __init__(self, objective: _Objective, direction: Tensor) -> None:
        self.direction = direction
        self._objective = objective
        self._start = [param.detach().clone() for param in objective.params]

    def move(self, t: float) -> None:
        """Move the parameters to the point at `t`."""
        for param, start in zip(self._objective.params, self._start, strict=True):
            param.detach().copy_(start)
        offset = 0
        for param in self._objective.params:  # which may share elements: those move by the sum of their parts
            moved = _real(param.detach())
            part = self.direction[offset : offset + moved.numel()].reshape(moved.shape)
            moved.add_(part.to(moved.dtype) * t)
            offset += moved.numel()

    def __call__(self, t: float) -> Point:
        """Loss and gradient at `t`; the parameters stay there."""
        self.move(t)
        loss = float(self._objective.loss())
        gradient = self._objective.gradient()
        return Point(t, loss, gradient, float((gradient * self.direction).sum()))


@dataclass
class _History:
    """The state passed from one iteration to the next, with the names of PyTorch's state dicts."""

    d: Tensor | None = None
    t: float = 0.0
    old_dirs: list[Tensor] = field(default_factory=list[Tensor])  # changes of the gradient
    old_stps: list[Tensor] = field(default_factory=list[Tensor])  # the steps that caused them
    ro: list[Tensor] = field(default_factory=list[Tensor])  # reciprocals of the products of both
    H_diag: Any = 1
    prev_flat_grad: Tensor | None = None
    prev_loss: float = 0.0

    def direction(self, gradient: Tensor, most: int) -> tuple[Tensor, float]:
        """The descent direction, and the directional derivative along it."""
        if self.prev_flat_grad is not None and self.d is not None:
            self._learn(gradient - self.prev_flat_grad, self.d * float(self.t), most)
        if not self.old_dirs:
            steepest = -gradient * self.H_diag
            return steepest, float((gradient * steepest).sum())
        room = 1 << (len(self.ro) - 1).bit_length()  # powers of two, so that few programs are compiled
        vectors = [*_padded(self.old_dirs, room), *_padded(self.old_stps, room)]
        inputs = (operand(gradient), *vectors, *_padded(self.ro, room), operand(self.H_diag))
        n = many(room)
        direction, slope = apply(call_of(lbfgs_step, (ONE, n, n, n, ONE)), inputs)
        return wrap(direction), float(wrap(slope))

    def _learn(self, change: Tensor, move: Tensor, most: int) -> None:
        """Add a pair if the curvature along it is positive, and drop the oldest one if there are too many."""
        product = (change * move).sum()
        ratio, scale = 1.0 / product, product / (change * change).sum()
        if float(product) <= 1e-10:  # reading it computes the other values as well
            return
        for history, new in ((self.old_dirs, change), (self.old_stps, move), (self.ro, ratio)):
            if len(history) == most:
                history.pop(0)
            history.append(new)
        self.H_diag = scale


def _padded(tensors: list[Tensor], room: int) -> list[Value]:
    """The tensors, padded with zeros to a length. The zeros share one array but are separate inputs of the program."""
    zero = filled(tensors[0], 0.0)._read()
    return [operand(x) for x in tensors] + [own(zero) for _ in range(room - len(tensors))]


def _real(x: Tensor) -> Tensor:
    return op.view_as_real(x) if x.dtype.is_complex else x


def _peak(x: Tensor) -> float:
    return float(x.abs().max())
