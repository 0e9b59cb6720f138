"""torchaudio's loops over samples, as its Python calls them."""

import pytest

import weft

weft.ops.load_library("torchaudio/lib/_torchaudio.abi3.so")


def test_a_recursive_filter_writes_behind_what_is_there():
    padded = weft.tensor([[[0.0, 2.0, 0, 0, 0]]])
    found = weft.ops.torchaudio._lfilter_core_loop(weft.ones(1, 1, 3), weft.tensor([[0.5, -1.0, 1.0]]), padded)
    assert padded.tolist() == [[[0.0, 2.0, 3.0, 3.0, 2.5]]]
    assert found.tolist() == padded.tolist()


def test_an_overdriven_waveform():
    waveform, temp, out = weft.tensor([[1.0, 2.0, 4.0]]), weft.tensor([[1.0, 3.0, 2.0]]), weft.zeros(1, 3)
    last_in, last_out = weft.tensor([0.5]), weft.tensor([1.0])
    weft.ops.torchaudio._overdrive_core_loop(waveform, temp, last_in, last_out, out)
    kept = [1.0 - 0.5 + 0.995]
    kept += [3 - 1 + 0.995 * kept[0]]
    kept += [2 - 3 + 0.995 * kept[1]]
    assert out[0].tolist() == pytest.approx([x * 0.5 + y * 0.75 for x, y in zip([1, 2, 4], kept, strict=True)])
    assert (last_in.tolist(), last_out.tolist()) == ([2.0], pytest.approx([kept[2]]))


def test_what_is_not_there():
    assert weft.ops._torchaudio.cuda_version() is None
    assert weft.ops._torchaudio.is_align_available() is False
    with pytest.raises(AttributeError, match=r"no attribute 'rnnt_loss_forward'.*torchaudio::rnnt_loss_forward"):
        weft.ops.torchaudio.rnnt_loss_forward
