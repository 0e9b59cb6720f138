"""Programs with collectives, which all replicas run together as one executable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol
from zlib import crc32

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from weft._lazy.precision import KEEP_CASTS
from weft._lazy.signature import Signature
from weft.ops._jax import device_put, jit, shard_map
from weft.ops._replicas import AXIS, set_replica_count

_MOST_NAMED = 3  # collectives in the text of a program
_LONGEST_TEXT = 120  # characters


class Replication(Protocol):
    """What programs need of the job: its devices, one for each replica, and a way to start together."""

    mesh: Mesh
    device: jax.Device

    def run_together(self, what: str, launch: Callable[[], Sequence[jax.Array]]) -> Sequence[jax.Array]:
        """The computed results of `launch()`, called once all replicas have come with an equal text.

        `DistBackendError`, on all replicas, if their texts differ or one has ended.
        """
        ...


class _Job:
    replication: Replication | None = None


def set_replication(replication: Replication | None) -> None:
    """Run programs with collectives on these devices; None is a job of one replica."""
    _Job.replication = replication
    set_replica_count(1 if replication is None else replication.mesh.size)


def replication() -> Replication | None:
    """The job of which this process is a replica; None if it is the only one."""
    return _Job.replication


def replicated(
    body: Callable[..., Sequence[Any]], donated: Sequence[int], signatures: Sequence[Signature]
) -> Callable[..., Sequence[jax.Array]]:
    """The body as a program of all replicas, from and to this replica's arrays.

    `signatures` are those of its applications that have collectives. Along the first dim, the program's arrays have a
    part for each replica. Scalars get such a dim.
    """
    job = _Job.replication
    assert job is not None, "signatures have collectives only in a job"
    mesh, device, text = job.mesh, job.device, _text(signatures)
    scalars: list[bool] = []  # which arguments are, by position; known at the first call
    scalar_results: list[bool] = []

    def of_replica(*parts: jax.Array) -> list[Any]:
        results = body(*[part.reshape(()) if scalar else part for part, scalar in zip(parts, scalars, strict=True)])
        scalar_results[:] = [not result.ndim for result in results]
        return [result.reshape(1) if scalar else result for result, scalar in zip(results, scalar_results, strict=True)]

    spec = PartitionSpec(AXIS)
    sharded = shard_map(of_replica, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    program = jit(sharded, donate_argnums=tuple(donated), compiler_options=KEEP_CASTS)

    def run(*args: Any) -> list[jax.Array]:
        if not scalars:
            scalars[:] = [x is not None and not np.ndim(x) for x in args]
        wholes = [None if x is None else _whole(x, mesh, device) for x in args]  # None: a pack without numbers
        results = job.run_together(text, lambda: program(*wholes))
        return [_part(x, mesh.size, scalar) for x, scalar in zip(results, scalar_results, strict=True)]

    return run


def of_one_replica(body: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
    """A body with collectives as a function of one replica's arrays that can be lowered, but not run."""
    job = _Job.replication
    assert job is not None, "signatures have collectives only in a job"
    spec = PartitionSpec()
    return shard_map(body, mesh=job.mesh, in_specs=spec, out_specs=spec, check_vma=False)


def _whole(x: Any, mesh: Mesh, device: jax.Device) -> jax.Array:
    """The arrays of all replicas as one, of which this process has its part."""
    part = device_put(x if np.ndim(x) else x.reshape(1), device)
    shape = (mesh.size * part.shape[0], *part.shape[1:])
    return jax.make_array_from_single_device_arrays(shape, _split(mesh), [part])


def _part(whole: jax.Array, count: int, scalar: bool) -> jax.Array:
    part = whole.addressable_data(0)
    if not whole.size:  # an empty array is not split
        return part.reshape(whole.shape[0] // count, *whole.shape[1:])
    return part.reshape(()) if scalar else part


@lru_cache(maxsize=8)  # key: the mesh
def _split(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(AXIS))


def _text(signatures: Sequence[Signature]) -> str:
    """A program's collectives, which must be equal on all replicas: the first of them, and a checksum of all."""
    calls = [f"{s.name} of {s.avals[0].dtype.name}{list(s.avals[0].shape)}" for s in signatures]
    checksum = crc32("\n".join(f"{s.name} {s.avals} {s.call.static if s.call else ''}" for s in signatures).encode())
    names = ", ".join(calls[:_MOST_NAMED])
    more = f" and {len(calls) - _MOST_NAMED} more" if len(calls) > _MOST_NAMED else ""
    return f"a program with {names[:_LONGEST_TEXT]}{more} ({checksum:08x})"
