"""Connectionist temporal classification (https://www.cs.toronto.edu/~graves/icml_2006.pdf), in logarithms.

A target of L labels is a chain of 2 L + 1 states: its labels, with a blank before, between and behind them. `alpha`
sums over the paths that lead to a state at a time, `beta` over those that start from it; both include the state itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from weft.errors import DomainError, ShapeError, UnsupportedDTypeError
from weft.ops._autocast import CPU_FLOAT32
from weft.ops._dims import Factors, Sizes
from weft.ops._findings import namespace
from weft.ops._kinds import Array, Arrays, HostArray, Whole
from weft.ops._table import INTERNAL, Check, Derivative, Types, defop
from weft.ops._type_names import scalar_name


def _ctc_dims(shapes: Sequence[Sizes]) -> Factors:
    """Time, classes and labels are whole; so is the batch if all targets are in one vector."""
    joined = len(shapes[1]) == 1
    targets = ("label",) if joined else ("batch", "label")
    whole = {"time", "class", "label", "batch"} if joined else {"time", "class", "label"}
    ins = (("time", "batch", "class"), targets, ("batch",), ("batch",))
    return Factors(ins, (("batch",),), frozenset(whole))


def _labels(targets: Array, lengths: Array, longest: int) -> Array:
    """Targets as (batch, longest); a vector of all targets is cut by their lengths. Padding has arbitrary values."""
    if targets.ndim == 2:
        return targets[:, :longest].astype(np.int64)
    xp = namespace(targets)
    starts = lengths.cumsum() - lengths
    if not targets.size:
        return xp.zeros((lengths.shape[0], longest), np.int64)
    return xp.take(targets, starts[:, None] + np.arange(longest), mode="clip").astype(np.int64)


def _states(labels: Array, blank: Whole, classes: int) -> Array:
    """The class of every state: (batch, 2 labels + 1)."""
    batch, longest = labels.shape
    blanks = jnp.full((batch, longest), blank)
    pairs = jnp.stack([blanks, jnp.clip(labels, 0, classes - 1)], axis=2).reshape(batch, 2 * longest)
    return jnp.concatenate([pairs, jnp.full((batch, 1), blank)], axis=1)


def _skips(states: Array, blank: Whole) -> Array:
    """Whether a path may skip the state before: at a label, if it differs from the label before it."""
    before = jnp.pad(states, ((0, 0), (2, 0)), constant_values=-1)[:, :-2]
    return (states != blank) & (states != before) & (jnp.arange(states.shape[1]) > 1)


def _log_sum(*terms: Array) -> Array:
    """The logarithm of the sum of exponentials; -inf if all terms are."""
    peak = jax.lax.stop_gradient(jnp.maximum(jnp.max(jnp.stack(terms), axis=0), jnp.finfo(terms[0].dtype).min))
    total = sum(jnp.exp(term - peak) for term in terms)
    return jnp.where(total > 0, jnp.log(jnp.where(total > 0, total, 1)) + peak, -jnp.inf)


def _moved(x: Array, by: int) -> Array:
    """The states shifted by some places, forwards or backwards."""
    edges = (by, 0) if by > 0 else (0, -by)
    padded = jnp.pad(x, ((0, 0), edges), constant_values=-jnp.inf)
    return padded[:, : x.shape[1]] if by > 0 else padded[:, -by:]


def _forward(scores: Array, skips: Array) -> Array:
    """`alpha` of (time, batch, state), from the log-probabilities of the states."""
    first = jnp.where(jnp.arange(scores.shape[2]) < 2, scores[0], -jnp.inf)

    def step(alpha: Array, score: Array) -> tuple[Array, Array]:
        jump = jnp.where(skips, _moved(alpha, 2), -jnp.inf)
        following = _log_sum(alpha, _moved(alpha, 1), jump) + score
        return following, following

    return jnp.concatenate([first[None], jax.lax.scan(step, first, scores[1:])[1]])


def _backward(scores: Array, skips: Array, last: Array, ends: Array) -> Array:
    """`beta` of (time, batch, state). `last` is the last time of each sample, `ends` the states it may end in."""
    jumps = jnp.pad(skips, ((0, 0), (0, 2)))[:, 2:]

    def step(beta: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        score, time = at
        jump = jnp.where(jumps, _moved(beta, -2), -jnp.inf)
        rest = _log_sum(beta, _moved(beta, -1), jump)
        beta = jnp.where((last == time)[:, None], jnp.where(ends, 0.0, -jnp.inf), rest) + score
        return beta, beta

    times = jnp.arange(scores.shape[0])
    return jax.lax.scan(step, jnp.full_like(scores[0], -jnp.inf), (scores, times), reverse=True)[1]


def _ends(lengths: Array, states: int) -> Array:
    """Whether a path may end in a state: the last label, or the blank behind it."""
    at = jnp.arange(states)
    return (at == 2 * lengths[:, None]) | (at == 2 * lengths[:, None] - 1)


def _scores(log_probs: Array, states: Array) -> Array:
    """Log-probabilities of the states: (time, batch, state)."""
    return jnp.take_along_axis(log_probs, states[None], axis=2)


def _check(log_probs: Array, targets: Array, input_lengths: Array, target_lengths: Array) -> None:
    if log_probs.dtype not in (jnp.float32, jnp.float64):
        raise UnsupportedDTypeError(f"\"ctc_loss_cpu\" not implemented for '{scalar_name(log_probs)}'")
    for name, lengths in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        if lengths.shape != log_probs.shape[1:2]:
            raise ShapeError(f"{name} must be of size batch_size")
    if targets.ndim == 2 and targets.shape[0] != log_probs.shape[1]:
        raise ShapeError(
            f"Expected tensor to have size {log_probs.shape[1]} at dimension 0, but got size {targets.shape[0]} "
            "for argument #2 'targets' (while checking arguments for ctc_loss_allocate_outputs)"
        )


def _bad_ctc(
    log_probs: Array, targets: Array, input_lengths: Array, target_lengths: Array, longest: int
) -> Array | HostArray:
    labels = _labels(targets, target_lengths, longest)
    used = np.arange(longest) < target_lengths[:, None]
    odd_label = used & ((labels < 0) | (labels >= log_probs.shape[2]))
    odd_time = (input_lengths < 0) | (input_lengths > log_probs.shape[0])
    odd_length = (target_lengths < 0) | (target_lengths > longest)
    return odd_label.any(axis=1) | odd_time | odd_length


def _ctc_vjp(
    g: Array,
    out: Arrays,
    log_probs: Array,
    targets: Array,
    input_lengths: Array,
    target_lengths: Array,
    longest: int,
    blank: Whole = 0,
    zero_infinity: bool = False,
) -> tuple[Array, None, None, None]:
    """PyTorch's gradient: with respect to the scores of which `log_probs` is the `log_softmax`."""
    _, loss, alpha = out
    states = _states(_labels(targets, target_lengths, longest), blank, log_probs.shape[2])
    scores = _scores(log_probs, states)
    ends = _ends(target_lengths, states.shape[1])
    beta = _backward(scores, _skips(states, blank), input_lengths - 1, ends)
    both = alpha + beta
    possible = jnp.isfinite(both) & jnp.isfinite(loss)[:, None]
    exponent = jnp.where(possible, both - jnp.where(possible, scores, 0) + jnp.where(possible, loss[:, None], 0), 0)
    passed = jnp.where(possible, jnp.exp(exponent), 0)  # probability of each state at each time
    samples = jnp.arange(states.shape[0])[:, None]
    by_class = jnp.zeros_like(log_probs).at[:, samples, states].add(passed)
    lost = (loss == jnp.inf)[:, None]
    gradient = jnp.where(lost, 0 if zero_infinity else jnp.nan, jnp.exp(log_probs) - by_class)
    inside = (jnp.arange(log_probs.shape[0])[:, None] < input_lengths)[..., None]
    return jnp.where(inside, gradient * jnp.where(lost & zero_infinity, 0, g[:, None]), 0), None, None, None


@defop(
    derivative=Derivative(vjp=_ctc_vjp, aux=2, name="CtcLoss"),
    dims=_ctc_dims,
    types=Types(autocast=CPU_FLOAT32),
    public=INTERNAL,
    check=Check(
        elements=_bad_ctc,
        text="ctc_loss: a length is negative or longer than its tensor, or a label is outside of the classes",
        error=DomainError,
    ),
)
def ctc_losses(
    log_probs: Array,
    targets: Array,
    input_lengths: Array,
    target_lengths: Array,
    longest: int,
    blank: Whole = 0,
    zero_infinity: bool = False,
) -> tuple[Array, Array, Array]:
    """-log of the probability of each target, summed over its alignments with the input.

    `log_probs` is (time, batch, class); `targets` is (batch, label), or one vector of all targets. `longest` is an
    upper bound of the target lengths. Further outputs are the losses before infinities are replaced, and `alpha`.
    """
    _check(log_probs, targets, input_lengths, target_lengths)
    states = _states(_labels(targets, target_lengths, longest), blank, log_probs.shape[2])
    alpha = _forward(_scores(log_probs, states), _skips(states, blank))
    # Of a sequence without steps, whose loss is set below, the first one is read.
    at = jnp.clip(input_lengths - 1, 0, log_probs.shape[0] - 1)
    final = jnp.take_along_axis(alpha, at[None, :, None], axis=0)[0]
    ended = jnp.where(_ends(target_lengths, states.shape[1]), final, -jnp.inf)
    loss = -jax.nn.logsumexp(ended, axis=1)
    # An input without steps can only stand for an empty target, which then has probability 1.
    nothing = jnp.where(target_lengths == 0, 0.0, jnp.inf).astype(loss.dtype)
    loss = jnp.where(input_lengths == 0, nothing, loss)
    return jnp.where(loss == jnp.inf, 0, loss) if zero_infinity else loss, loss, alpha
