"""Fourier transforms, of whole signals and of frames, and windows: SciPy's values, and PyTorch's rules and errors."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft
import scipy.signal

import weft
from weft import fft
from weft.signal import windows

X = np.random.default_rng(0).standard_normal((3, 4, 5))
C = X + 1j * X[::-1]


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize(("n", "dim"), [(None, -1), (3, 1), (7, 0)])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_one_dim(name, n, dim, norm):
    x = X if name in ("rfft", "ihfft") else C
    expected = getattr(scipy.fft, name)(x, n, dim, norm)
    np.testing.assert_allclose(getattr(fft, name)(weft.tensor(x), n, dim, norm).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize(("s", "dim"), [(None, None), ((3, 6), (2, 0)), ((3, 6), None), (None, (1,))])
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "hfftn", "ihfftn"])
def test_several_dims(name, s, dim):
    x = X if name in ("rfftn", "ihfftn") else C
    expected = getattr(scipy.fft, name)(x, s, dim)
    np.testing.assert_allclose(getattr(fft, name)(weft.tensor(x), s, dim).numpy(), expected, atol=1e-12)


@pytest.mark.compiled
def test_more_dims_than_xla_takes_at_once():
    x = np.random.default_rng(1).standard_normal((2, 3, 2, 3, 2))
    with weft.enable_grad():
        weft.use_deterministic_algorithms(True)  # which compiles
        np.testing.assert_allclose(fft.fftn(weft.tensor(x)).numpy(), scipy.fft.fftn(x), atol=1e-12)
        np.testing.assert_allclose(fft.irfftn(fft.rfftn(weft.tensor(x))).numpy(), x, atol=1e-12)


def test_types():
    assert fft.fft(weft.ones(4)).dtype is weft.complex64
    assert fft.rfft(weft.ones(4, dtype=weft.int64)).dtype is weft.complex64
    assert fft.irfft(weft.ones(4, dtype=weft.float64)).dtype is weft.float64
    with pytest.raises(RuntimeError, match=r"^Unsupported dtype Half$"):
        fft.fft(weft.ones(4, dtype=weft.float16))
    with pytest.raises(RuntimeError, match=r"^irfft expects a floating point output tensor, but got ComplexFloat$"):
        fft.irfft(weft.ones(4), out=weft.empty(0, dtype=weft.complex64))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: fft.fft(x, n=0), RuntimeError, r"Invalid number of data points \(0\) specified"),
        (lambda x: fft.irfft(x[:, :1]), RuntimeError, r"Invalid number of data points \(0\) specified"),
        (lambda x: fft.fft(x, dim=5), IndexError, "Dimension out of range"),
        (lambda x: fft.fft(x, norm="x"), RuntimeError, 'Invalid normalization mode: "x"'),
        (lambda x: fft.rfft(x + 0j), RuntimeError, "rfft expects a real input tensor, but got ComplexFloat"),
        (lambda x: fft.rfftn(x + 0j), RuntimeError, "rfftn expects a real-valued input tensor, but got ComplexFloat"),
        (lambda x: fft.rfftn(x, dim=()), RuntimeError, "rfftn must transform at least one axis"),
        (lambda x: fft.fftn(x, dim=(0, 0)), RuntimeError, "FFT dims must be unique"),
        (lambda x: fft.fftn(x, s=(2,), dim=(0, 1)), RuntimeError, "When given, dim and shape arguments must have"),
        (lambda x: fft.fftn(x, s=(1, 2, 3)), RuntimeError, "Got shape with 3 values but input tensor only has 2"),
        (lambda x: fft.fft(x.sum()), IndexError, "Dimension specified as -1 but tensor has no dimensions"),
        (lambda x: fft.fftfreq(3, dtype=weft.int64), RuntimeError, "fftfreq requires a floating point or complex"),
    ],
)
def test_refusals(call, error, text):
    with pytest.raises(error, match=f"^{text}"):
        call(weft.ones(4, 5))


@pytest.mark.parametrize("n", [1, 4, 5])
def test_frequencies(n):
    for name in ("fftfreq", "rfftfreq"):
        np.testing.assert_allclose(getattr(fft, name)(n, 0.5).numpy(), getattr(scipy.fft, name)(n, 0.5))
    order = fft.fftshift(fft.fftfreq(n))
    assert order.tolist() == sorted(order.tolist())
    assert fft.ifftshift(order).tolist() == fft.fftfreq(n).tolist()
    assert fft.fftfreq(n, dtype=weft.float64, requires_grad=True).requires_grad


@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2", "irfft2", "hfft2", "ihfft2"])
def test_gradients(name):
    x = weft.tensor(X[0] if name in ("rfft2", "ihfft2") else C[0]).requires_grad_()
    assert weft.autograd.gradcheck(lambda x: getattr(fft, name)(x, s=(3, 6)), x)


# ---- frames


def test_gradients_of_many_sizes():
    for n in (8, 10, 12, 14, 11):
        x = weft.ones(n, dtype=weft.float64, requires_grad=True)
        fft.rfft(x).real.sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), scipy.fft.fft(np.eye(n))[: n // 2 + 1].real.sum(0), atol=1e-12)


def test_stft_is_of_each_frame():
    x, window = X.ravel()[:20], scipy.signal.get_window("hann", 8)
    found = weft.stft(weft.tensor(x), 8, 3, window=weft.tensor(window), center=False, return_complex=True)
    frames = np.stack([x[start : start + 8] * window for start in range(0, 13, 3)])
    np.testing.assert_allclose(found.numpy(), np.fft.rfft(frames).T, atol=1e-12)


@pytest.mark.parametrize("onesided", [True, False])
@pytest.mark.parametrize("win_length", [6, 8])
def test_istft_restores_the_signal(win_length, onesided):
    x = weft.tensor(X.reshape(3, 20)).requires_grad_()
    window = windows.hann(win_length, sym=False, dtype=weft.float64)
    how = {"n_fft": 8, "win_length": win_length, "window": window, "onesided": onesided}
    spectra = x.stft(**how, return_complex=True)
    y = spectra.istft(**how, length=20)
    np.testing.assert_allclose(y.detach().numpy(), x.detach().numpy(), atol=1e-12)
    y.square().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.detach().numpy(), atol=1e-11)


def test_a_missing_window_is_warned_of():
    with pytest.warns(UserWarning, match=r"^stft: a window was not provided"):
        spectra = weft.stft(weft.ones(16), 4, return_complex=True)
    with pytest.warns(UserWarning, match=r"^istft: the signal has 18 numbers and `length` asks for 20"):
        assert weft.istft(spectra, 4, window=weft.ones(4), length=20)[-2:].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"n_fft": 40}, "stft: expected 0 < n_fft < 20, but got n_fft=40"),
        ({"n_fft": 8, "hop_length": 0}, "stft: expected hop_length > 0, but got hop_length=0"),
        ({"n_fft": 8, "win_length": 9}, "stft: expected 0 < win_length <= n_fft, but got win_length=9"),
        ({"n_fft": 8, "window": weft.ones(4)}, "stft: expected a 1D window tensor of size equal to win_length=8"),
        ({"n_fft": 8, "return_complex": None}, "stft requires the return_complex parameter be given for real inputs"),
        ({"n_fft": 8, "center": True, "align_to_window": True}, "stft align_to_window should only be set when center"),
        ({"n_fft": 8, "window": weft.ones(8) + 0j, "onesided": True}, "Cannot have onesided output if window or input"),
    ],
)
def test_refused_frames(options, text):
    with pytest.raises(RuntimeError, match=f"^{text}"):
        weft.stft(weft.ones(20), **{"center": False, "return_complex": True, **options})


def test_istft_needs_windows_that_cover_the_signal():
    spectra = weft.ones(5, 3, dtype=weft.complex64)
    window = windows.hann(8, sym=False)
    with pytest.raises(RuntimeError, match=r"^istft: window overlap add min: the squares of the window add up to 0"):
        weft.istft(spectra, 8, window=window, center=False)
    with pytest.raises(RuntimeError, match=r"^istft requires a complex-valued input tensor"):
        weft.istft(weft.ones(5, 3), 8, window=window)
    with pytest.raises(RuntimeError, match=r"^istft: expected 0 < hop_length <= win_length$"):
        weft.istft(spectra, 8, 9, window=window)


# ---- windows


@pytest.mark.parametrize(
    ("name", "scipys", "options"),
    [
        ("bartlett", "bartlett", {}),
        ("blackman", "blackman", {}),
        ("cosine", "cosine", {}),
        ("exponential", ("exponential", None, 2.0), {"tau": 2.0}),
        ("gaussian", ("gaussian", 1.5), {"std": 1.5}),
        ("general_cosine", ("general_cosine", [0.5, 0.3, 0.2]), {"a": [0.5, 0.3, 0.2]}),
        ("general_hamming", ("general_hamming", 0.6), {"alpha": 0.6}),
        ("hamming", "hamming", {}),
        ("hann", "hann", {}),
        ("kaiser", ("kaiser", 5.0), {"beta": 5.0}),
        ("nuttall", "nuttall", {}),
    ],
)
def test_windows(name, scipys, options):
    function = getattr(windows, name)
    for count in (1, 2, 7):
        for sym in (True, False):
            expected = scipy.signal.get_window(scipys, count, fftbins=not sym)
            found = function(count, sym=sym, dtype=weft.float64, **options)
            np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)
    assert function(0, **options).shape == (0,)
    with pytest.raises(ValueError, match=r"requires non-negative window length, got M=-1$"):
        function(-1, **options)
    with pytest.raises(ValueError, match=r"expects float32 or float64 dtypes, got: torch\.float16$"):
        function(3, dtype=weft.float16, **options)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: windows.exponential(3, tau=0.0), "Tau must be positive, got: 0.0 instead."),
        (lambda: windows.exponential(3, center=1.0), "Center must be None for symmetric windows"),
        (lambda: windows.gaussian(3, std=-1.0), "Standard deviation must be positive, got: -1.0 instead."),
        (lambda: windows.kaiser(3, beta=-1.0), "beta must be non-negative, got: -1.0 instead."),
        (lambda: windows.general_cosine(3, a=[]), "Coefficients cannot be empty"),
    ],
)
def test_refused_windows(call, text):
    with pytest.raises(ValueError, match=f"^{text}$"):
        call()
