"""torchaudio's compiled operators, `weft.ops.torchaudio`: the loops over samples of its filters.

Losses and alignments are not there. torchaudio asks for them by name when they are called.
"""

from __future__ import annotations

from weft._interop.provided import provided
from weft._tensor.codegen import op
from weft._tensor.convert import tensor
from weft._tensor.tensor import Tensor

_KEPT = 0.995
"""The part of the last output that is added to a change."""


@provided("_torchaudio::cuda_version() -> int?")
def cuda_version() -> None:
    """The version of CUDA for which the operators are compiled: None."""


@provided("_torchaudio::is_align_available() -> bool")
def is_align_available() -> bool:
    """Whether there are operators of forced alignment."""
    return False


@provided(
    "torchaudio::_lfilter_core_loop(Tensor input_signal_windows, Tensor a_coeff_flipped, "
    "Tensor(a!) padded_output_waveform) -> Tensor(a!)"
)
def lfilter_core_loop(input_signal_windows: Tensor, a_coeff_flipped: Tensor, padded_output_waveform: Tensor) -> Tensor:
    """Write the outputs of a recursive filter behind those before the first, which are there; the last tap is 1."""
    taps = a_coeff_flipped.shape[1] - 1
    padded_output_waveform[..., taps:] = op.recursive_filter(
        input_signal_windows, a_coeff_flipped[:, :taps], padded_output_waveform[..., :taps]
    )
    return padded_output_waveform


@provided(
    "torchaudio::_overdrive_core_loop(Tensor waveform, Tensor temp, Tensor(a!) last_in, Tensor(b!) last_out, "
    "Tensor(c!) output_waveform) -> (Tensor(a!), Tensor(b!), Tensor(c!))"
)
def overdrive_core_loop(
    waveform: Tensor, temp: Tensor, last_in: Tensor, last_out: Tensor, output_waveform: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Write a waveform, with what is distorted of it and changes fast, and the last samples."""
    changes = temp - op.concat([last_in[:, None], temp[:, :-1]], 1)
    feedback = tensor([[-_KEPT]], device=waveform.device, dtype=waveform.dtype)
    kept = op.recursive_filter(changes[:, None], feedback, last_out[:, None, None])[:, 0]
    output_waveform[:] = waveform * 0.5 + kept * 0.75
    last_in[:], last_out[:] = temp[:, -1], kept[:, -1]
    return last_in, last_out, output_waveform
