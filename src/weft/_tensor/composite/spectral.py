"""Short-time Fourier transforms: the spectra of overlapping frames of a signal, and the way back."""

from __future__ import annotations

from weft._base.site import warn_user
from weft._tensor.codegen import op
from weft._tensor.composite.neural import pad
from weft._tensor.functions import composite
from weft._tensor.tensor import Tensor
from weft.errors import DTypeError, OptionError, OutOfRangeError, ShapeError

_NO_WINDOW = (
    "{}: a window was not provided, so each frame is cut off sharply, which spreads its frequencies; "
    "give `window=weft.hann_window(win_length)`, or `window=weft.ones(win_length)` to keep this without a warning"
)


def _require(condition: bool, name: str, text: str) -> None:
    if not condition:
        raise OutOfRangeError(f"{name}: {text}")


def _window(name: str, window: Tensor | None, win_length: int, n_fft: int, like: Tensor) -> Tensor:
    """The window in the middle of a frame of zeros; ones if none is given."""
    if window is None and win_length == n_fft:
        warn_user(_NO_WINDOW.format(name))
    weights = op.ones((win_length,), dtype=like.dtype.to_real(), device=like.device) if window is None else window
    if tuple(weights.shape) != (win_length,):
        raise ShapeError(
            f"{name}: expected a 1D window tensor of size equal to win_length={win_length}, but got window with size "
            f"{list(weights.shape)}"
        )
    left = (n_fft - win_length) // 2
    return op.constant_pad(weights, (left, n_fft - win_length - left), 0) if n_fft > win_length else weights


def _centered(input: Tensor, n_fft: int, pad_mode: str) -> Tensor:
    """The signal with half a frame added at both ends."""
    extended = op.reshape(input, (*[1] * (3 - input.ndim), *input.shape))
    padded = pad(extended, [n_fft // 2, n_fft // 2], pad_mode)
    return op.reshape(padded, tuple(padded.shape[-input.ndim :]))


def _is_one_sided(onesided: bool | None, *tensors: Tensor) -> bool:
    is_complex = any(x.is_complex() for x in tensors)
    if onesided and is_complex:
        raise OptionError("Cannot have onesided output if window or input is complex")
    return not is_complex if onesided is None else onesided


def _check_stft(input: Tensor, size: int, n_fft: int, hop_length: int, win_length: int) -> None:
    name = "stft"
    _require(0 < n_fft <= size, name, f"expected 0 < n_fft < {size}, but got n_fft={n_fft}")
    _require(hop_length > 0, name, f"expected hop_length > 0, but got hop_length={hop_length}")
    _require(0 < win_length <= n_fft, name, f"expected 0 < win_length <= n_fft, but got win_length={win_length}")


@composite()
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """The Fourier transforms of frames of `n_fft` numbers, every `hop_length`, each multiplied by the window.

    The signal is (time) or (batch, time), the result (batch, frequency, frame), with a last dim of real and imaginary
    parts unless `return_complex`. `center` puts the first frame's middle at the first number.
    """
    hop, length = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    if center and align_to_window is not None:
        raise OptionError("stft align_to_window should only be set when center = false")
    if not input.dtype.is_differentiable:
        raise DTypeError("stft: expected a tensor of floating point or complex values")
    if input.ndim not in (1, 2):
        raise ShapeError(f"stft: expected a 1D or 2D tensor, but got one of shape {list(input.shape)}")
    if return_complex is None and not input.is_complex() and (window is None or not window.is_complex()):
        raise OptionError(
            "stft requires the return_complex parameter be given for real inputs, and will further require that "
            "return_complex=True in a future PyTorch release."
        )
    x = _centered(input, n_fft, pad_mode) if center else input
    _check_stft(x, x.shape[-1], n_fft, hop, length)
    frame_window = _window("stft", window, length, n_fft, x)
    if align_to_window:
        margin = (n_fft - length) // 2
        x = op.constant_pad(x, (margin, n_fft - length - margin), 0)
    frames = op.window(x, x.ndim - 1, n_fft, hop) * frame_window
    sizes, norm = ((frames.ndim - 1,), (-1,)), "ortho" if normalized else "backward"
    one_sided = _is_one_sided(onesided, input, frame_window)
    if frames.is_complex():
        spectra = op.fft_c2c(frames, *sizes, norm, True)
    else:
        spectra = op.fft_r2c(frames, *sizes, norm, True, one_sided)
    result = op.transpose(spectra, -2, -1)
    return op.view_as_real(result) if return_complex is False else result


def _added_up(frames: Tensor, hop: int) -> Tensor:
    """Frames (batch, frame, time) put at their places, every `hop`; where they overlap, they are added up."""
    size = frames.shape[-1] + hop * (frames.shape[-2] - 1)
    columns = op.transpose(frames, -2, -1)
    return op.squeeze(op.col2im(columns, (1, size), (1, frames.shape[-1]), 1, 0, (1, hop)), (1, 2))


def _check_istft(input: Tensor, n_fft: int, hop: int, length: int, one_sided: bool) -> None:
    expected = n_fft // 2 + 1 if one_sided else n_fft
    rule = "n_fft / 2 + 1 when onesided=True" if one_sided else "n_fft when onesided=False"
    _require(
        input.shape[-2] == expected,
        "istft",
        f"expected the frequency dimension (2nd to the last) of the input tensor to match {rule}, but got "
        f"{input.shape[-2]}",
    )
    _require(0 < hop <= length, "istft", "expected 0 < hop_length <= win_length")
    _require(0 < length <= n_fft, "istft", "expected 0 < win_length <= n_fft")


@composite()
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal whose `stft` is nearest to the input (Griffin and Lim, 1984); `length` numbers of it, if given.

    Waits for the window, whose squares must not add up to 0 anywhere.
    """
    hop, win_length = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    if not input.is_complex():
        raise DTypeError(
            "istft requires a complex-valued input tensor matching the output from stft with return_complex=True."
        )
    _require(input.numel() > 0, "istft", "input tensor cannot be empty.")
    _require(input.ndim in (2, 3), "istft", f"expected a tensor with 2 or 3 dimensions, but got {input.ndim}")
    one_sided = input.shape[-2] != n_fft if onesided is None else onesided
    if return_complex and one_sided:
        raise OptionError("Cannot have onesided output if window or input is complex")
    if not return_complex and window is not None and window.is_complex():
        raise OptionError("Complex windows are incompatible with return_complex=False")
    _check_istft(input, n_fft, hop, win_length, one_sided)
    frame_window = _window("istft", window, win_length, n_fft, input)
    spectra = op.transpose(input if input.ndim == 3 else op.unsqueeze(input, 0), 1, 2)
    norm = "ortho" if normalized else "backward"
    if return_complex:
        frames = op.fft_c2c(spectra, (2,), (-1,), norm, False)
    else:
        frames = op.fft_c2r(spectra, (2,), (n_fft,), norm, False)  # which reads the first half alone
    signal = _restored(frames, frame_window, hop, _bounds(n_fft, hop, frames.shape[1], center, length))
    if length is not None and signal.shape[1] < length:
        warn_user(
            f"istft: the signal has {signal.shape[1]} numbers and `length` asks for {length}, so zeros are added at "
            "the end; check `center` and `hop_length`"
        )
        signal = op.constant_pad(signal, (0, length - signal.shape[1]), 0)
    return signal if input.ndim == 3 else op.squeeze(signal, 0)


def _bounds(n_fft: int, hop: int, frames: int, center: bool, length: int | None) -> tuple[int, int]:
    """Where the signal starts and ends in what the frames cover."""
    covered = n_fft + hop * (frames - 1)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else covered - start
    return start, min(end, covered)


def _restored(frames: Tensor, window: Tensor, hop: int, bounds: tuple[int, int]) -> Tensor:
    """Overlapping frames as one signal: their mean, weighted by the squares of the window."""
    start, end = bounds
    squares = op.expand(op.square(window), (1, *frames.shape[1:]))
    total, weight = (op.slice_dim(_added_up(x, hop), 1, start, end - start, 1) for x in (frames * window, squares))
    if not bool((op.abs(weight) > 1e-11).all()):
        raise OutOfRangeError(
            "istft: window overlap add min: the squares of the window add up to 0 somewhere, so the signal is not "
            "determined there; use a smaller hop_length, another window, or center=True"
        )
    return total / weight
