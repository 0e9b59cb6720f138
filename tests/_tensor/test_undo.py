"""What is undone when a program does not fit into memory."""

import gc
import weakref
from pathlib import Path

import pytest

import weft as torch
from weft import nn
from weft.utils import memory

N = 1 << 24  # an array of N by N numbers is 1 PiB, more than addresses reach


def large(size):
    """A number for which an array of size by size numbers is needed, also by XLA."""
    return (torch.arange(1.0, size + 1)[:, None] * torch.ones(1, size)).sort(0).values.mean()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(1)
        self.fc = nn.Linear(1, 1)

    def forward(self, size):
        return self.fc(self.norm((torch.arange(4.0).view(4, 1) * torch.ones(1, size)).mean(1, keepdim=True)))


def train_step(net, optimizer, size):
    optimizer.zero_grad()
    loss = net(4).sum() * large(size)
    loss.backward()
    optimizer.step()
    return loss.item()


def trained():
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    train_step(net, optimizer, 2)
    return net, optimizer


def test_training_goes_on_as_if_the_step_had_not_been():
    net, optimizer = trained()
    expected = [train_step(net, optimizer, 2) for _ in range(2)]
    net, optimizer = trained()
    failed = False
    try:
        train_step(net, optimizer, N)
    except torch.OutOfMemoryError:
        failed = True
    assert failed
    assert [train_step(net, optimizer, 2) for _ in range(2)] == expected


def test_parameters_and_state_are_those_before_the_step():
    net, optimizer = trained()
    before = {name: x.tolist() for name, x in net.fc.state_dict().items()}
    moments = [x.tolist() for entry in optimizer.state.values() for x in entry.values()]
    with pytest.raises(torch.OutOfMemoryError):
        train_step(net, optimizer, N)
    assert {name: x.tolist() for name, x in net.fc.state_dict().items()} == before
    assert [x.tolist() for entry in optimizer.state.values() for x in entry.values()] == moments
    assert all(p.requires_grad and p.is_leaf for p in net.parameters())


def test_a_retry_within_the_handler():
    net, optimizer = trained()
    try:
        train_step(net, optimizer, N)
    except torch.OutOfMemoryError:
        loss = train_step(net, optimizer, 2)
    assert loss == train_step(*trained(), 2)


def test_what_does_not_depend_on_it_is_done():
    count, total = torch.zeros(3), torch.zeros(3)
    count[0].item(), total[0].item()
    count += 1
    total += large(N)
    with pytest.raises(torch.OutOfMemoryError):
        total.tolist()
    assert count.tolist() == [1, 1, 1]
    assert total.tolist() == [0, 0, 0]


def test_other_kinds_of_tensors_are_left_alone():
    sparse = torch.eye(2).to_sparse()
    sparse *= 2
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    with pytest.raises(torch.OutOfMemoryError):
        large(N).item()
    assert sparse.to_dense().tolist() == [[2, 0], [0, 2]]
    assert [x.tolist() for x in nested.unbind()] == [[1, 1], [1, 1, 1]]


def test_what_the_step_held_is_freed():
    memory.memory_allocated("cpu")

    def step():
        x = torch.ones(N // 64) + 1
        held.append(weakref.ref(x._read()))
        return (x[:4].sum() * large(N)).item()

    held: list[weakref.ref] = []
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(torch.OutOfMemoryError) as failure:
            step()
        del failure
        assert held[0]() is None  # without the collector: nothing refers to itself
    finally:
        gc.enable()


def test_an_error_that_is_kept_keeps_no_results_of_what_has_failed():
    with pytest.raises(torch.OutOfMemoryError) as failure:
        large(N).item()
    torch.cpu.synchronize()  # which waits for all arrays
    assert "out of memory" in str(failure.value)


def test_the_error_names_what_is_large_and_its_line():
    memory.record_history(device="cpu")
    try:
        x = torch.zeros(7, 1 << 20) + 1  # the line
        x[0, 0].item()
        with pytest.raises(torch.OutOfMemoryError) as failure:
            large(N).item()
    finally:
        memory.record_history(enabled=False, device="cpu")
    lines = str(failure.value).splitlines()
    source = Path(__file__).read_text().splitlines()
    number = next(n for n, line in enumerate(source, 1) if "# the line" in line)
    assert f"  28.00 MiB  float32[7, 1048576], by add  {__file__}:{number}" in lines
