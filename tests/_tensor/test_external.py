"""NumPy arrays and tensors over the same elements. NumPy itself is the oracle: its views share as tensors have to."""

import copy
import ctypes
import gc
import pickle
import threading
import tracemalloc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft as torch

SIZES = [1, 5, 4096, 65_537]


@pytest.mark.parametrize("size", SIZES)
def test_each_side_sees_what_the_other_writes(size):
    array = np.zeros(size, np.float32)
    x = torch.from_numpy(array)
    np.add(array, 1, out=array)
    assert (x == 1).all()
    x.add_(1)
    assert (array == 2).all()
    shown = x.numpy()
    shown[-1] = np.nan
    assert np.isnan(array[-1])
    assert x[-1].isnan()
    x[-1] = 7
    assert array[-1] == shown[-1] == 7


@pytest.mark.parametrize("size", SIZES)
def test_the_array_of_a_tensor_may_be_written_to(size):
    x = torch.ones(size, dtype=torch.int64)
    array = x.numpy()
    assert array.flags.writeable
    array += 1
    assert (x == 2).all()
    x.mul_(3)
    assert (array == 6).all()


@pytest.mark.parametrize("size", SIZES)
def test_what_is_recorded_keeps_the_elements_of_then(size):
    array = np.ones(size)
    x = torch.from_numpy(array)
    twice = x * 2
    total = x.sum()
    array[:] = 5
    assert (twice == 2).all()
    assert total == size
    assert (x * 2 == 10).all()


def test_an_unchanged_array_is_one_input_however_often_it_is_used():
    x = torch.from_numpy(kept := np.ones(5000))
    first, second = x + 1, x + 2
    assert first._read().inputs[0] is second._read().inputs[0]
    kept[0] = 2
    assert (x + 1)._read().inputs[0] is not first._read().inputs[0]


@pytest.mark.parametrize(
    "reduced",
    [
        lambda x: x[torch.tensor([3, 999, -1])],
        lambda x: x.index_select(0, torch.tensor([3, 999])),
        lambda x: x.sum(0),
        lambda x: x[17],
        lambda x: x.argmax(),
    ],
)
def test_what_reads_much_and_gives_little_copies_nothing(reduced):
    array = np.arange(1_000_000.0).reshape(1000, 1000)
    x = torch.from_numpy(array)
    reduced(x)
    tracemalloc.start()
    result = reduced(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    before = result.clone()
    array[:] = 0
    assert peak < array.nbytes / 20
    assert before.any()
    assert torch.equal(result, before) or result.untyped_storage().nbytes() == array.nbytes  # a view shows the zeros
    with pytest.raises(IndexError, match="index 1000 is out of bounds"):
        x[torch.tensor([1000])].tolist()


def test_an_array_that_its_user_drops_is_not_copied():
    array = np.ones((100, 100))
    address = array.ctypes.data
    x = torch.from_numpy(array)
    del array
    held = (x + 1)._read().inputs[0]
    assert held.on_host.ctypes.data == address
    x += 1
    assert (x == 2).all()


@pytest.mark.parametrize("keep", ["view", "memoryview", "base", "capsule", "weak"])
def test_whoever_refers_to_the_memory_keeps_it_outside(keep):
    array = np.zeros(8)
    x = torch.from_numpy(array[2:] if keep == "base" else array)
    kept = {
        "view": lambda: array[3:],
        "memoryview": lambda: memoryview(array),
        "base": lambda: array,
        "capsule": lambda: np.from_dlpack(array),
        "weak": lambda: weakref.ref(array),
    }[keep]()
    before = x + 0
    if keep != "weak":
        del array
    before = x + 0
    target = kept() if keep == "weak" else np.asarray(kept)
    target[-1] = 9
    assert before[-1] == 0
    assert (x + 0)[-1] == 9


def test_memory_is_freed_with_the_last_that_shows_it():
    array = np.zeros(1000)
    alive = weakref.ref(array)
    x = torch.from_numpy(array)
    y = x[3:].detach()
    del array, x
    assert alive() is not None
    del y
    gc.collect()
    assert alive() is None


LAYOUTS = {
    "transposed": lambda a: a.T,
    "steps": lambda a: a[::2, 1::2],
    "column": lambda a: a[:, 1],
    "no dims": lambda a: a[1, 1, ...],
    "broadcast": lambda a: np.broadcast_to(a[:1], (3, 4)),
    "Fortran": np.asfortranarray,
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_arrays_with_strides(name):
    whole = np.arange(16.0).reshape(4, 4)
    array = LAYOUTS[name](whole)
    x = torch.from_numpy(array)
    assert x.stride() == tuple(step // 8 for step in array.strides)
    whole += 1
    array = array if name == "Fortran" else LAYOUTS[name](whole)
    assert np.array_equal(x.numpy(), array)
    if array.flags.writeable:
        x.fill_(-1)
        assert (array == -1).all()
        assert np.array_equal((whole == -1).sum() if name != "Fortran" else 16, array.size)


def test_strides_in_the_middle_of_elements_are_refused():
    records = np.zeros(3, np.dtype([("a", np.int16), ("b", np.float32)]))
    with pytest.raises(ValueError, match="strides not a multiple"):
        torch.from_numpy(records["b"])
    with pytest.raises(ValueError, match="negative"):
        torch.from_numpy(np.zeros(3)[::-1])


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "float16", "float64", "complex64"])
def test_types(dtype):
    x = torch.zeros(3, 2).to(getattr(torch, dtype))
    array = x.numpy()
    array[1, 1] = True
    assert x[1, 1] == 1
    x[0] = True
    assert (array[0] == 1).all()
    assert torch.from_numpy(array).dtype is x.dtype


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_types_that_numpy_has_not(dtype):
    x = torch.ones(3).to(dtype)
    with pytest.raises(TypeError, match=r"^Got unsupported ScalarType .* Use x\.float\(\)\.numpy\(\)"):
        x.numpy()
    x.view(getattr(torch, f"uint{8 * x.itemsize}")).numpy()[0] = 0
    assert x.float().tolist() == [0, 1, 1]


def test_the_address_is_that_of_the_array():
    array = np.zeros((3, 4))
    x = torch.from_numpy(array)
    assert x.data_ptr() == x.untyped_storage().data_ptr() == array.ctypes.data
    assert x[1:, 2].data_ptr() == array[1:, 2].ctypes.data
    y = torch.ones(5)
    kept = y.numpy()
    ctypes.c_float.from_address(y.data_ptr()).value = 7
    assert y[0] == kept[0] == 7


def test_force_gives_an_array_of_everything():
    x = torch.tensor([1 + 2j, 3], requires_grad=True)
    assert x.numpy(force=True).tolist() == [1 + 2j, 3]
    assert x.conj().numpy(force=True).tolist() == [1 - 2j, 3]
    with pytest.raises(TypeError, match=r"Use Tensor\.to_dense"):
        torch.eye(2).to_sparse().numpy(force=True)


def test_views_of_another_type_and_of_parts():
    array = np.zeros(2)
    x = torch.from_numpy(array)
    x.view(torch.int64)[1] = 1
    assert array[1] == 5e-324
    pairs = torch.view_as_complex(torch.from_numpy(parts := np.ones((3, 2))))
    pairs.mul_(2)
    assert (parts == 2).all()
    z = torch.tensor([1 + 2j, 3])
    z.imag.numpy()[0] = 9
    assert z[0] == 1 + 9j
    with pytest.raises(RuntimeError, match=r"resolve_conj\(\)"):
        z.conj().numpy()
    assert z.conj().resolve_conj().numpy()[0] == 1 - 9j


def test_leaves_keep_what_they_are():
    array = np.ones(3, np.float32)
    x = torch.from_numpy(array).requires_grad_()
    (x * x).sum().backward()
    assert x.is_leaf
    assert x.grad.tolist() == [2, 2, 2]
    with torch.no_grad():
        x -= 0.5
    assert array.tolist() == [0.5, 0.5, 0.5]
    assert x.requires_grad
    with pytest.raises(RuntimeError, match="Can't call numpy"):
        x.numpy()
    with pytest.raises(RuntimeError, match="a leaf Variable"):
        x += 1
    x.detach().numpy()[0] = 4
    assert array[0] == 4
    assert x.is_leaf


def test_the_graph_of_a_result_stays():
    w = torch.ones(3, requires_grad=True)
    y = w * 2
    array = y.detach().numpy()
    array[0] = 10
    assert y.grad_fn is not None
    assert not y.is_leaf
    (y * y).sum().backward()
    assert w.grad.tolist() == [40, 8, 8]  # as if 10 had been there from the start: 2 * 10 * 2
    y.mul_(3)
    assert array.tolist() == [30, 6, 6]


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.LBFGS])
def test_optimizers_write_to_the_array_of_a_parameter(kind):
    def trained(*, shown):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        array = model.weight.detach().numpy() if shown else None
        optimizer = kind(model.parameters())
        x = torch.ones(4, 3)

        def closure():
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        assert array is None or np.array_equal(array, model.weight.detach().numpy())
        return model.weight.tolist()

    assert trained(shown=True) == trained(shown=False)


def test_read_only_arrays_are_shown_until_they_are_written_to():
    array = np.arange(3.0)
    shown = array[:]
    shown.flags.writeable = False
    with pytest.warns(UserWarning, match=r"^The given NumPy array is not writable\. "):
        x = torch.from_numpy(shown)
    with pytest.warns(UserWarning, match=r"^The given buffer is not writable\. "):
        assert torch.frombuffer(b"ab", dtype=torch.uint8).tolist() == [97, 98]
    array[0] = 5
    assert x[0] == 5
    view = x[1:]
    x.add_(1)
    assert array.tolist() == [5, 1, 2]
    assert x.tolist() == [6, 2, 3]
    assert view.tolist() == [2, 3]
    array[1] = 8
    assert x.tolist() == [6, 2, 3]
    assert view.tolist() == [2, 3]


def test_copies_are_apart():
    array = np.ones(3)
    x = torch.from_numpy(array)
    shared = [x.detach(), x.view(3, 1), torch.as_tensor(array), torch.asarray(x), x.data, torch.nn.Parameter(x)]
    copies = [x.clone(), torch.tensor(array), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.float(), x.cpu() + 0]
    array[:] = 2
    assert all((one == 2).all() for one in shared)
    assert all((one == 1).all() for one in copies)


def test_a_failed_check_leaves_the_memory_as_it_is():
    array = np.ones(3)
    x = torch.from_numpy(array)
    with pytest.raises(IndexError):
        x.add_(torch.ones(3)[torch.tensor([0, 1, 7])])
    assert array.tolist() == [1, 1, 1]
    assert x.tolist() == [1, 1, 1]


def test_memory_of_others_is_not_resized():
    x = torch.from_numpy(kept := np.zeros(3))
    with pytest.raises(RuntimeError, match="not resizable"):
        x.resize_(10)
    assert kept.size == 3


def test_other_objects_are_refused():
    with pytest.raises(TypeError, match=r"expected np\.ndarray \(got list\)"):
        torch.from_numpy([1, 2])
    with pytest.raises(TypeError, match="can't convert meta device type tensor"):
        torch.zeros(2, device="meta").numpy()


def test_captures_read_anew_and_do_not_replay_writes():
    array = np.ones(4, np.float32)
    x = torch.from_numpy(array)
    double = torch.compile(lambda t: t * 2)
    held = torch.compile(lambda: x.sum())
    for n in range(4):
        array[0] = n
        assert double(x)[0] == 2 * n
        assert held() == n + 3

    def increased(t):
        t.add_(1)
        return t.sum()

    compiled = torch.compile(increased)
    compiled = torch.compile(increased)
    with pytest.warns(UserWarning, match="needs to write to memory that others see"):
        assert compiled(x) == array.sum() == 10
    assert compiled(x) == array.sum() == 14


def test_transforms_take_external_tensors():
    x = torch.from_numpy(kept := np.full(3, 2.0))
    assert torch.func.grad(lambda t: (t * t).sum())(x).tolist() == [4, 4, 4]
    assert torch.func.jvp(lambda t: t * t, (x,), (x,))[1].tolist() == [8, 8, 8]
    assert torch.vmap(lambda t: t + 1)(x).tolist() == [3, 3, 3]
    y = torch.ones(3, requires_grad=True) * 2
    y.backward(x)
    assert kept.tolist() == [2, 2, 2]


def test_threads_that_come_and_go_lose_no_write():
    x = torch.zeros(1000)

    def write():
        for _ in range(200):
            array = x.numpy()
            array[0] += 1
            del array
            x + 1

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert x[0] == 800


# --- random programs: tensors beside NumPy's views ------------------------------------------------------------------

VIEWS = {
    "row": (lambda t: t[1], lambda a: a[1, ...]),
    "part": (lambda t: t[1:], lambda a: a[1:]),
    "steps": (lambda t: t[::2], lambda a: a[::2]),
    "turned": (lambda t: t.movedim(0, -1), lambda a: np.moveaxis(a, 0, -1)),
    "flat": (lambda t: t.unsqueeze(0), lambda a: a[None]),
    "all": (lambda t: t.detach(), lambda a: a[...]),
}
steps = st.lists(
    st.tuples(
        st.sampled_from(["view", "array", "tensor", "part", "read", "numpy", "drop", "grad off"]),
        st.sampled_from(sorted(VIEWS)),
        st.integers(0, 7),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(steps, st.booleans())
def test_random_programs_agree_with_numpy(program, starts_as_array):
    """Pairs (tensor, array that shows the same by NumPy's rules), of which any may be written to."""
    whole = np.arange(24.0).reshape(4, 3, 2)
    model = whole.copy()
    x = torch.from_numpy(whole) if starts_as_array else torch.tensor(whole)
    pairs = [(x, model)]
    outside = [(whole, model)] if starts_as_array else []  # arrays on the memory of tensors, beside those of the model
    del whole
    earlier = []
    for number, (action, view, at) in enumerate(program, start=1):
        tensor, array = pairs[at % len(pairs)]
        if action == "view" and array.ndim and array.shape[0] > 1:
            of_tensor, of_array = VIEWS[view]
            pairs.append((of_tensor(tensor), of_array(array)))
        elif action == "array" and outside:
            for one in outside[at % len(outside)]:
                one += number
        elif action == "tensor":
            tensor.mul_(2).sub_(number)
            array *= 2
            array -= number
        elif action == "part" and array.ndim:
            tensor[0] = number
            array[0] = number
        elif action == "read":
            earlier.append((tensor * 1, array.copy()))
        elif action == "numpy":
            outside.append((tensor.detach().numpy(), array))
        elif action == "drop":
            outside.clear()
        elif action == "grad off":
            with torch.no_grad():
                tensor.add_(number)
            array += number
        for one, own in pairs:
            assert np.array_equal(one.tolist(), own.tolist()), (action, view)
    for result, own in earlier:
        assert np.array_equal(result.tolist(), own.tolist())
