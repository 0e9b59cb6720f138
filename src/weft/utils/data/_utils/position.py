"""The position of a loader in a pass, from which another process can resume."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING

from weft._base.types import SavedState
from weft._tensor.generator import Generator, default_generator
from weft.errors import StateDictError
from weft.utils.data._utils.draw import host_generator
from weft.utils.data._utils.one_pass import one_pass
from weft.utils.data.distributed import DistributedSampler
from weft.utils.data.sampler import BatchSampler

if TYPE_CHECKING:
    from weft.utils.data._utils.samples import AnyLoader, Batch, Index


@dataclass(slots=True)
class LoaderPosition:
    """A position in the order of one pass.

    position    the number of samples before it, counted over all processes that share the order; the number of batches,
                if a sampler of the user's makes them
    epoch       the epoch of a `DistributedSampler`, whose order depends on it; else None
    generators  the generators' states (seed and number of draws) before the order was drawn; None before that
    """

    position: int
    epoch: int | None
    generators: list[tuple[int, int]] | None

    def state(self) -> SavedState:
        """The position as numbers and lists, for a checkpoint."""
        return asdict(self)


def initial_position(loader: AnyLoader) -> LoaderPosition:
    """The position at which the next pass starts, if no state is loaded."""
    sampler = loader.sampler
    return LoaderPosition(0, sampler.epoch if isinstance(sampler, DistributedSampler) else None, None)


def position_of_state(state: SavedState) -> LoaderPosition:
    """The position that `LoaderPosition.state` describes; `RuntimeError` for anything else."""
    match state:
        case {
            "position": int(position),
            "epoch": int() | None as epoch,
            "generators": list() | None as generators,
        } if position >= 0:
            return LoaderPosition(
                position, epoch, generators and [(int(seed), int(draws)) for seed, draws in generators]
            )
    description = sorted(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
    raise StateDictError(
        f"expected a state of DataLoader.state_dict(), with position, epoch and generators; got {description}"
    )


def begin(loader: AnyLoader, position: LoaderPosition) -> tuple[Iterator[Batch], int]:
    """The rest of the order from a position on, and the seed of the pass.

    An order that was drawn before is drawn again from the same states of the generators. Afterwards the default
    generator gets back the state that it had; generators of the loader or of samplers continue after the draw.
    """
    generators = _generators(loader)
    present = default_generator.state()
    old_states = position.generators
    if old_states is None:
        position.generators = [generator.state() for generator in generators]
    elif len(old_states) == len(generators):
        for generator, state in zip(generators, old_states, strict=True):
            generator.restore(state)
    else:
        raise StateDictError(
            f"the loader whose state was loaded drew from {len(old_states)} generators, this one draws from "
            f"{len(generators)}: give both the same `generator`, or none"
        )
    seed = int(host_generator(loader.generator).integers(2**62))
    indices = _draw_order(_indices(loader, position.position))
    # The order was drawn once already; drawing it again must not move the numbers that the program draws next.
    if old_states is not None:
        default_generator.restore(present)
    return indices, seed


def samples_in_batch(loader: AnyLoader) -> int:
    """The number by which a batch advances the position."""
    if loader.batch_sampler is not None and loader.batch_size is None:
        return 1
    replicas = loader.sampler.num_replicas if isinstance(loader.sampler, DistributedSampler) else 1
    return (loader.batch_size or 1) * replicas


def _generators(loader: AnyLoader) -> list[Generator]:
    """The generators that may draw an order: the default one, the loader's, and those of its samplers."""
    generators = [loader.generator]
    source = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    while source is not None:
        generators.append(getattr(source, "generator", None))
        source = getattr(source, "sampler", None)
    own = [generator for generator in generators if isinstance(generator, Generator)]
    return list(dict.fromkeys([default_generator, *own]))


def _indices(loader: AnyLoader, position: int) -> Iterator[Index]:
    """The samplers' indices from a position on."""
    if not position:
        return one_pass(loader.sampler if loader.batch_sampler is None else loader.batch_sampler)
    if loader.batch_sampler is not None and loader.batch_size is None:
        return islice(loader.batch_sampler, position, None)
    indices = _skip_to(loader.sampler, position)
    return indices if loader.batch_size is None else iter(BatchSampler(indices, loader.batch_size, loader.drop_last))


def _skip_to(sampler: Iterable[Index], position: int) -> Iterator[Index]:
    if not isinstance(sampler, DistributedSampler):
        return islice(sampler, position, None)
    sampler.start = position
    try:
        return one_pass(sampler)
    finally:
        sampler.start = 0


def _draw_order(indices: Iterator[Index]) -> Iterator[Index]:
    """The same indices, with the first one already read, because samplers draw their order then."""
    return chain(list(islice(indices, 1)), indices)
