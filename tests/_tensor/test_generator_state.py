"""States of random generators, those of PyTorch's among them."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import weft as torch

SEEDS = [(0, 0), (5, 0), (-1, 3), (2**63 - 1, 2**40)]


def of_pytorch(seed: int, *, left: int = 1, seeded: int = 1) -> torch.Tensor:
    """What `torch.manual_seed(seed); torch.get_rng_state()` gives in PyTorch."""
    words = np.random.RandomState(seed).get_state(legacy=False)["state"]["key"]
    start = np.int64(seed).tobytes() + np.array([left, seeded], np.int32).tobytes() + bytes(8)
    content = start + words.astype(np.uint64).tobytes()
    return torch.from_numpy(np.frombuffer(content.ljust(5056, b"\0"), np.uint8).copy())


@pytest.mark.parametrize(("seed", "draws"), SEEDS)
@pytest.mark.parametrize(("device", "size"), [("cpu", 5056), ("cuda", 16)])
def test_states_continue_on_every_device(seed, draws, device, size):
    generator = torch.Generator(device).manual_seed(seed)
    generator.set_offset(draws)
    state = generator.get_state()
    assert (state.dtype, state.shape) == (torch.uint8, (size,))
    again = torch.Generator()
    again.set_state(state)
    assert (again.initial_seed(), again.get_offset()) == (seed % 2**64, draws)
    assert torch.equal(torch.rand(3, generator=again), torch.rand(3, generator=generator))
    for moved in (pickle.loads(pickle.dumps(again)), copy.copy(again), copy.deepcopy(again)):
        assert moved.device.type == "cpu"
        assert torch.equal(torch.rand(3, generator=moved), torch.rand(3, generator=again.clone_state()))


def test_states_differ_for_pytorch_too():
    """It reads the twister, and not the number of draws."""
    generator = torch.Generator().manual_seed(5)
    assert generator.get_state()[:5016].tolist() == of_pytorch(5)[:5016].tolist()
    torch.rand(1, generator=generator)
    later = generator.get_state().tolist()
    assert later[24:5016] != of_pytorch(5)[24:5016].tolist()
    torch.rand(1, generator=generator)
    assert generator.get_state().tolist()[24:5016] != later[24:5016]


def test_a_state_of_pytorchs_is_a_seed():
    with pytest.warns(UserWarning, match=r"the seed 5\), .* from the seed 11270068956971397108, which is") as warned:
        torch.set_rng_state(of_pytorch(5))
    assert [warning.filename for warning in warned] == [__file__]
    assert torch.initial_seed() == 11270068956971397108
    with pytest.warns(UserWarning, match="mt19937"):
        other = torch.Generator().set_state(of_pytorch(6))
    assert other.initial_seed() != torch.initial_seed()
    assert torch.random.get_rng_state()[:8].tolist() == list((11270068956971397108).to_bytes(8, "little"))


@pytest.mark.parametrize(
    ("state", "error", "text"),
    [
        (
            torch.zeros(24, dtype=torch.uint8),
            RuntimeError,
            "has 24 bytes, but a CPU generator's has 5056",
        ),
        (torch.zeros(5056, dtype=torch.uint8), RuntimeError, "Invalid mt19937 state"),
        (of_pytorch(5, left=700), RuntimeError, "Invalid mt19937 state"),
        (torch.zeros(16), TypeError, r"must be a torch.ByteTensor, got torch.float32\[16\]"),
        (b"state", TypeError, "expected a torch.ByteTensor, but got bytes"),
    ],
)
def test_other_states_are_refused(state, error, text):
    torch.manual_seed(5)
    with pytest.raises(error, match=text):
        torch.set_rng_state(state)
    assert torch.initial_seed() == 5


def test_pickles_of_earlier_versions_are_read():
    generator = torch.Generator.__new__(torch.Generator)
    generator.__setstate__({"device": "cpu", "state": (7, 2)})
    assert (generator.initial_seed(), generator.get_offset()) == (7, 2)
