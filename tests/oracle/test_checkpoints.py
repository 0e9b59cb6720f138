"""Checkpoints and memory that go between the package and PyTorch."""

from __future__ import annotations

import io
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft import serialization

torch = pytest.importorskip("torch", reason="needs torch")
record = pytest.importorskip("tests._checkpoint.record", reason="needs torch", exc_type=ImportError)
safetensors = pytest.importorskip("safetensors.torch", reason="needs torch", exc_type=ImportError)

pytestmark = pytest.mark.oracle

SAVED = [{}, {"pickle_protocol": 4}, {"pickle_protocol": 5}, {"_use_new_zipfile_serialization": False}]


def through(obj, **options):
    file = io.BytesIO()
    torch.save(obj, file, **options)
    file.seek(0)
    return weft.load(file)


def assert_same(ours, theirs):
    """Equal in value and kind, with tensors of both packages in the same places."""
    if isinstance(theirs, torch.Tensor):
        assert (str(ours.dtype), tuple(ours.shape), ours.requires_grad) == (
            str(theirs.dtype),
            tuple(theirs.shape),
            theirs.requires_grad,
        )
        assert ours.tolist() == theirs.tolist()
    elif isinstance(theirs, np.ndarray):
        np.testing.assert_array_equal(ours, theirs, strict=True)
    elif isinstance(theirs, dict):
        assert set(ours) == set(theirs)
        for key, value in theirs.items():
            assert_same(ours[key], value)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            assert_same(mine, other)
    else:
        assert ours == theirs or str(ours) == str(theirs)
        assert isinstance(theirs, torch.dtype) or type(ours).__name__ == type(theirs).__name__


@pytest.mark.parametrize("options", SAVED)
@pytest.mark.parametrize("name", ["training", "kinds"])
def test_what_pytorch_saves_is_loaded(name, options):
    saved = getattr(record, name)()
    assert_same(through(saved, **options), saved)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_any_view_is_loaded(sizes, data):
    base = torch.arange(float(np.prod(sizes))).reshape(sizes)
    view = base.permute(data.draw(st.permutations(range(len(sizes)))))
    for dim, size in enumerate(view.shape):
        start = data.draw(st.integers(0, size))
        view = view[(slice(None),) * dim + (slice(start, None, data.draw(st.integers(1, 3))),)]
    if 1 in view.shape:
        view = view.expand([3 if n == 1 else n for n in view.shape])
    assert_same(through([view, base]), [view, base])


def test_the_same_things_are_refused(tmp_path):
    path = tmp_path / "x.pt"
    torch.save(torch.nn.Linear(1, 1), path)
    names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    assert sorted(serialization.get_unsafe_globals_in_checkpoint(path)) == sorted(names)
    for load in (torch.load, weft.load):
        with pytest.raises(
            pickle.UnpicklingError, match=r"torch.nn.modules.linear.Linear was not an allowed global by"
        ):
            load(path)


@pytest.mark.parametrize("weights_only", [True, False])
def test_pytorch_refuses_the_packages_own_files(tmp_path, weights_only):
    weft.save({"x": weft.ones(2)}, tmp_path / "x.pt")
    with pytest.raises(RuntimeError, match=r"file in archive is not in a subdirectory: weft\.json"):
        torch.load(tmp_path / "x.pt", weights_only=weights_only)


def test_safetensors_both_ways(tmp_path):
    path = tmp_path / "x.safetensors"
    tensors = {name: t for name, t in record.kinds()["types"].items() if name != "complex128"}
    ours = {name: weft.tensor([0, 1, 1]).to(getattr(weft, name)) for name in tensors}
    weft.save(ours, path)
    assert_same(ours, safetensors.load_file(path))
    safetensors.save_file(tensors, path)
    assert_same(weft.load(path), tensors)


def test_dlpack_both_ways():
    theirs = torch.arange(6.0).reshape(2, 3)
    ours = weft.from_dlpack(theirs)
    assert_same(ours, theirs)
    assert ours._array().unsafe_buffer_pointer() == theirs.data_ptr()
    back = torch.from_dlpack(ours)
    assert back.data_ptr() == theirs.data_ptr()
    assert_same(weft.from_dlpack(theirs.t()), theirs.t())
    assert_same(weft.from_dlpack(torch.utils.dlpack.to_dlpack(theirs)), theirs)
    assert_same(ours, torch.utils.dlpack.from_dlpack(weft.to_dlpack(ours)))
    assert_same(weft.asarray(theirs), theirs)
    assert_same(ours, torch.asarray(ours))
