"""NumPy arrays that tensors show: writes to either are seen by the other, or refused."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import weft as torch

SHARING = {
    "from_numpy": torch.from_numpy,
    "as_tensor": torch.as_tensor,
    "as_tensor of its type": lambda array: torch.as_tensor(array, dtype=torch.float64),
    "asarray": torch.asarray,
    "from_dlpack": torch.from_dlpack,
}


def refused(array):
    with pytest.raises(ValueError, match="read-only"):
        array[...] = 5.0
    return True


@pytest.mark.parametrize("name", SHARING)
def test_an_array_shows_writes_to_its_tensor_and_takes_none_of_its_own(name):
    array = np.arange(3.0)
    x = SHARING[name](array)
    assert refused(array)
    x.add_(1)
    x[0] = 7
    assert array.tolist() == x.tolist() == [7.0, 2.0, 3.0]
    del x
    array[0] = 9
    assert array.tolist() == [9.0, 2.0, 3.0]


def test_results_of_operators_do_not_hold_the_array():
    array = np.ones(3)
    result = torch.from_numpy(array).float() * 2  # not computed yet
    array[:] = 100
    assert result.tolist() == [2.0, 2.0, 2.0]
    loaded = torch.utils.data.default_collate([array, array])
    array[:] = 1
    assert loaded.tolist() == [[100.0] * 3] * 2


def test_whoever_shares_the_storage_holds_the_array():
    array = np.zeros((2, 2), np.float32)
    for share in (
        lambda x: x.view(4),
        lambda x: x.t()[1:],
        lambda x: x.detach(),
        lambda x: torch.nn.Parameter(x),
        lambda x: x.data,
    ):
        part = share(torch.from_numpy(array))
        assert refused(array)
        with torch.no_grad():
            part.add_(1)
        assert array.sum() == part.sum().item() > 0
        del part
        array[...] = 0


def test_optimizers_write_to_the_array():
    array = np.ones(2, np.float32)
    weight = torch.nn.Parameter(torch.from_numpy(array))
    weight.sum().backward()
    torch.optim.SGD([weight], lr=0.5).step()
    assert array.tolist() == [0.5, 0.5]


def test_parts_of_arrays():
    array = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    row = torch.from_numpy(array[1])
    assert refused(array)
    row.zero_()
    assert array.tolist() == [[0.0, 1.0, 2.0], [0.0, 0.0, 0.0]]
    del row
    turned = torch.from_numpy(array.T[::2])
    turned[1, 0] = 8
    assert array[0, 2] == 8
    turned.t_()
    turned[0, 0] = 4
    assert array[0, 0] == 4


def test_a_write_by_another_view_of_the_memory_is_told():
    whole = np.zeros(4)
    view, part = whole.reshape(2, 2), whole[:2]
    x = torch.from_numpy(part)
    view[0] = 3
    with pytest.warns(UserWarning, match=r"^a NumPy array was written to by another view of its memory while a tensor"):
        x.add_(1)
    assert whole.tolist() == [1.0, 1.0, 0.0, 0.0]
    y = torch.from_numpy(view[1])
    view[1, 0] = 3
    with pytest.warns(UserWarning, match=r"^a NumPy array was written to by another view"):
        del y
    torch.from_numpy(view[1])


def test_two_tensors_of_one_array_share_it():
    array = np.zeros(2)
    first, second = torch.from_numpy(array), torch.from_numpy(array)
    first.add_(1)
    assert second.tolist() == [1.0, 1.0]
    del first
    assert refused(array)
    second.add_(1)
    assert array.tolist() == [2.0, 2.0]
    del second
    array[0] = 0


def test_a_tensor_that_gets_other_elements_lets_the_array_go():
    array = np.zeros(2)
    x = torch.from_numpy(array)
    x.data = torch.ones(2, dtype=torch.float64)
    array[0] = 5
    assert x.tolist() == [1.0, 1.0]
    y = torch.from_numpy(array)
    view = y.view(2, 1)
    y.data = torch.ones(2, dtype=torch.float64)
    assert refused(array)
    view.zero_()
    assert array.tolist() == [0.0, 0.0]


def test_copies_are_apart():
    array = np.zeros(2)
    x = torch.from_numpy(array)
    copies = [torch.tensor(array), x.clone(), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.float()]
    for one in copies:
        one.add_(1)
    assert array.tolist() == x.tolist() == [0.0, 0.0]
    del x
    array[0] = 1


def test_arrays_that_are_read_only_are_copied():
    array = np.arange(2.0)
    array.flags.writeable = False
    x = torch.from_numpy(array)
    x.add_(1)
    assert array.tolist() == [0.0, 1.0]
    del x
    assert not array.flags.writeable


def test_an_array_may_go_before_its_tensor():
    x = torch.from_numpy(np.zeros(2))
    x.add_(1)
    y = torch.from_numpy(np.zeros((2, 2))[0])
    y.add_(1)
    assert x.tolist() == y.tolist() == [1.0, 1.0]


def test_numpy_gives_what_cannot_be_written_to():
    x = torch.ones(2)
    array = x.numpy()
    assert refused(array)
    x.add_(1)
    assert array.tolist() == [1.0, 1.0]


def test_only_arrays_are_taken():
    with pytest.raises(TypeError, match=r"^expected np.ndarray \(got list\)$"):
        torch.from_numpy([1])
