"""How far a pass over a loader is, and how another process goes on from there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain, islice
from typing import Any

from weft._tensor.generator import Generator, default_generator
from weft.errors import StateDictError
from weft.utils.data._utils.draw import host_generator
from weft.utils.data.distributed import DistributedSampler
from weft.utils.data.sampler import BatchSampler


@dataclass(slots=True)
class Place:
    """A place in the order of one pass.

    position    samples before it, counted over all processes that share the order; batches, where a sampler of the
                user's forms them
    epoch       of a `DistributedSampler`, which has an order for each; else None
    generators  what they were at, seed and draws, before the order was drawn; None if it is not drawn yet
    """

    position: int
    epoch: int | None
    generators: list[tuple[int, int]] | None

    def state(self) -> dict[str, Any]:
        """Plain numbers and lists, for a checkpoint."""
        return asdict(self)


def start_of(loader: Any) -> Place:
    """Where the next pass starts unless a state is loaded."""
    sampler = loader.sampler
    return Place(0, sampler.epoch if isinstance(sampler, DistributedSampler) else None, None)


def place_of(state: Any) -> Place:
    """The place that `Place.state` describes; `RuntimeError` for anything else."""
    match state:
        case {
            "position": int(position), "epoch": int() | None as epoch, "generators": list() | None as generators,
        } if position >= 0:  # fmt: skip
            return Place(position, epoch, generators and [(int(seed), int(draws)) for seed, draws in generators])
    shown = sorted(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
    raise StateDictError(
        f"expected a state of DataLoader.state_dict(), with position, epoch and generators; got {shown}"
    )


def begin(loader: Any, place: Place) -> tuple[Iterator[Any], int]:
    """The rest of the order from a place on, and the seed of the pass.

    An order that was drawn before is drawn again from the same states. The default generator then stays where the
    program has it; a generator of the loader or of a sampler goes on behind that draw.
    """
    generators = _generators(loader)
    present = default_generator.state()
    drawn_before = place.generators
    if drawn_before is None:
        place.generators = [generator.state() for generator in generators]
    elif len(drawn_before) == len(generators):
        for generator, state in zip(generators, drawn_before, strict=True):
            generator.restore(state)
    else:
        raise StateDictError(
            f"the loader whose state was loaded drew from {len(drawn_before)} generators, this one draws from "
            f"{len(generators)}: give both the same `generator`, or none"
        )
    seed = int(host_generator(loader.generator).integers(2**62))
    indices = _drawn(_indices(loader, place.position))
    if drawn_before is not None:
        default_generator.restore(present)
    return indices, seed


def samples_in_batch(loader: Any) -> int:
    """How far a batch moves a place."""
    if loader.batch_sampler is not None and loader.batch_size is None:
        return 1
    replicas = loader.sampler.num_replicas if isinstance(loader.sampler, DistributedSampler) else 1
    return (loader.batch_size or 1) * replicas


def _generators(loader: Any) -> list[Generator]:
    """What an order may be drawn from: the default generator, the loader's, and those of its samplers."""
    found = [loader.generator]
    source = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    while source is not None:
        found.append(getattr(source, "generator", None))
        source = getattr(source, "sampler", None)
    own = [generator for generator in found if isinstance(generator, Generator)]
    return list(dict.fromkeys([default_generator, *own]))


def _indices(loader: Any, position: int) -> Iterator[Any]:
    """What the samplers say after a position."""
    if not position:
        return iter(loader.sampler if loader.batch_sampler is None else loader.batch_sampler)
    if loader.batch_sampler is not None and loader.batch_size is None:
        return islice(loader.batch_sampler, position, None)
    indices = _dealt(loader.sampler, position)
    return indices if loader.batch_size is None else iter(BatchSampler(indices, loader.batch_size, loader.drop_last))


def _dealt(sampler: Iterable[Any], position: int) -> Iterator[Any]:
    if not isinstance(sampler, DistributedSampler):
        return islice(sampler, position, None)
    sampler.start = position
    try:
        return iter(sampler)
    finally:
        sampler.start = 0


def _drawn(indices: Iterator[Any]) -> Iterator[Any]:
    """The same, with the first one taken: samplers draw their order when they are asked for it."""
    return chain(list(islice(indices, 1)), indices)
