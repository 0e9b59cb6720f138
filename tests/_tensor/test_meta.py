"""The meta device: tensors with a shape and a type, and no elements; and default devices of blocks."""

import copy
import io
import pickle
import threading

import pytest

import weft as torch
from weft import nn
from weft.nn import functional as F


def meta(*size, **options):
    return torch.empty(*size, device="meta", **options)


def test_operators_give_types():
    x = meta(2, 3)
    assert repr(x) == "tensor(..., device='meta', size=(2, 3))"
    assert x.is_meta
    assert x.device == torch.device("meta")
    assert str(x.device) == "meta"
    assert (x @ x.T).shape == (2, 2)
    assert (x > 0).dtype is torch.bool
    assert (x + 1j).dtype is torch.complex64
    assert x.t().stride() == (1, 3)
    assert x[1, 1:].storage_offset() == 4
    assert [part.shape for part in x.split(2, dim=1)] == [(2, 2), (2, 1)]
    assert torch.tensor([1, 2], device="meta").dtype is torch.int64


def test_nothing_is_allocated():
    huge = meta(10**13)
    assert ((huge + huge) * 2).sum().shape == ()
    assert huge.nbytes == huge.untyped_storage().nbytes() == 4 * 10**13
    assert huge.data_ptr() == 0


def test_writes_change_types_only():
    x = meta(4)
    x += 1
    x[:2] = 7
    x.copy_(torch.ones(4))
    x.normal_().fill_(3)
    assert x.resize_(6).shape == (6,)
    x.data = meta(2, dtype=torch.float64)
    assert x.dtype is torch.float64


@pytest.mark.parametrize(
    ("read", "kind", "text"),
    [
        (lambda x: x.sum().item(), RuntimeError, "Cannot copy out of meta tensor; no data!"),
        (lambda x: x.tolist(), NotImplementedError, "Cannot copy out of meta tensor; no data!"),
        (lambda x: x.cpu(), NotImplementedError, r"to_empty\(device"),
        (lambda x: torch.ones(2).copy_(x), NotImplementedError, "no data!"),
        (lambda x: x.numpy(), TypeError, "can't convert meta device type tensor to numpy"),
        (lambda x: bool(x.sum()), RuntimeError, "no data!"),
        (lambda x: x.nonzero(), NotImplementedError, "no data!"),
        (lambda x: x + torch.ones(2), RuntimeError, "at least two devices, meta and cpu!"),
        (lambda x: nn.Linear(2, 2)(x), RuntimeError, "at least two devices, meta and cpu!"),
        (lambda x: x + torch.empty(3, device="meta"), RuntimeError, "must match the size of tensor b"),
    ],
)
def test_errors(read, kind, text):
    with pytest.raises(kind, match=text):
        read(meta(2))


def test_a_failed_read_leaves_other_values_alone():
    x, y = meta(2) + 1, torch.ones(2) + 1
    with pytest.raises(NotImplementedError):
        x.tolist()
    assert y.tolist() == [2, 2]


def test_values_of_both_devices_wait_in_one_list():
    x, y = meta(2), torch.zeros(2)
    for _ in range(3):
        x, y = x * 2, y + 1
    assert y.tolist() == [3, 3]
    assert x.shape == (2,)
    texts = []
    thread = threading.Thread(target=lambda: texts.append(repr(x + 1)))
    thread.start()
    thread.join()
    assert texts == ["tensor(..., device='meta', size=(2,))"]


def test_training_step():
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(8, 3), nn.BatchNorm1d(3)).to("meta")
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(meta(5, 2, dtype=torch.int64)), meta(5, dtype=torch.int64))
        loss.backward()
        optimizer.step()
    weight = model[2].weight
    assert weight.grad.is_meta
    assert optimizer.state[weight]["exp_avg"].is_meta


def test_indices_are_not_checked():
    assert nn.Embedding(3, 2, device="meta")(torch.tensor([7], device="meta")).shape == (1, 2)


def test_modes():
    x = meta(2, requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True):
        (x * 2).sum().backward()
    assert x.grad.is_meta
    compiled = torch.compile(lambda a: a * 2)
    assert [compiled(meta(3)).shape for _ in range(3)] == [(3,)] * 3
    assert torch.vmap(torch.sum)(meta(3, 2)).shape == (3,)


# --- modules ----------------------------------------------------------------------------------------------------


def test_modules_are_made_without_elements_and_filled():
    with torch.device("meta"):
        model = nn.Linear(3, 2)
    nn.init.xavier_uniform_(model.weight)
    assert model.weight.is_meta
    assert model.bias.is_meta
    with pytest.raises(NotImplementedError, match="to_empty"):
        model.to("cpu")
    assert copy.deepcopy(model).weight.is_meta
    filled = model.to_empty(device="cpu")
    assert filled is model
    assert model.weight.device.type == "cpu"
    model.reset_parameters()
    assert model.weight.abs().sum() > 0


def test_load_state_dict_assigns():
    source, model = nn.Linear(3, 2), nn.Linear(3, 2, device="meta")
    with pytest.warns(UserWarning, match="for (weight|bias): copying from a non-meta parameter .* which is a no-op"):
        model.load_state_dict(source.state_dict())
    assert model.weight.is_meta
    model.load_state_dict(source.state_dict(), assign=True)
    assert model.weight.tolist() == source.weight.tolist()
    assert model.weight.requires_grad


def test_skip_init():
    assert nn.utils.skip_init(nn.Linear, 3, 2).weight.shape == (2, 3)


def test_saved_and_loaded():
    model = nn.Linear(3, 2, device="meta", dtype=torch.float16)
    state = pickle.loads(pickle.dumps(model)).state_dict()
    file = io.BytesIO()
    torch.save({"state": state, "there": torch.ones(2)}, file)
    file.seek(0)
    loaded = torch.load(file)
    assert loaded["state"]["weight"].is_meta
    assert loaded["state"]["weight"].dtype is torch.float16
    assert loaded["there"].tolist() == [1, 1]


def test_loaded_without_elements():
    whole = torch.arange(6.0)
    file = io.BytesIO()
    torch.save([whole, whole[2:]], file)
    file.seek(0)
    first, second = torch.load(file, map_location="meta")
    assert first.is_meta
    assert second.is_meta
    assert second.shape == (4,)


# --- default devices --------------------------------------------------------------------------------------------


def test_blocks_nest():
    with torch.device("meta"):
        with torch.device("cpu"):
            inner = torch.ones(2)
        outer = (torch.ones(2), torch.tensor([1]), torch.arange(3), torch.rand(2), torch.full((2,), 1.0), torch.eye(2))
        assert torch.ones(2, device="cpu").sum().item() == 2
        assert torch.zeros_like(inner).device.type == inner.new_ones(2).device.type == "cpu"
        assert inner[[1, 0]].tolist() == [1, 1]
    assert inner.device.type == "cpu"
    assert all(x.is_meta for x in outer)
    assert not torch.ones(1).is_meta


def test_a_block_ends_with_an_error():
    with pytest.raises(KeyError), torch.device("meta"):
        raise KeyError
    assert torch.get_default_device().type == "cpu"


def test_decorator():
    @torch.device("meta")
    def make(n, *, scale):
        """Doc."""
        return torch.ones(n) * scale

    assert make(2, scale=3).is_meta
    assert make.__doc__ == "Doc."
    assert not torch.ones(1).is_meta


def test_set_default_device():
    torch.set_default_device("meta")
    try:
        with torch.device("cpu"):
            assert not torch.ones(1).is_meta
        assert torch.ones(1).is_meta
        assert torch.get_default_device() == torch.device("meta")
        kinds = []
        thread = threading.Thread(target=lambda: kinds.append(torch.ones(1).device.type))
        thread.start()
        thread.join()
        assert kinds == ["cpu"]
    finally:
        torch.set_default_device(None)
    assert not torch.ones(1).is_meta
