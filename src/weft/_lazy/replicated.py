"""Programs with collectives, which all replicas run together as one executable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import NoReturn, Protocol
from zlib import crc32

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from weft._base.types import AnyArray, Arg
from weft._lazy import metrics
from weft._lazy.precision import KEEP_CASTS
from weft._lazy.signature import Signature
from weft.errors import DistBackendError
from weft.ops._jax import device_put, jit, shard_map
from weft.ops._kinds import Many
from weft.ops._replicas import AXIS, exchange_count, set_replica_count

_MOST_NAMED = 3  # collectives in the text of a program
_LONGEST_TEXT = 120  # characters


class Replication(Protocol):
    """What programs need of the job: its devices, one for each replica, and a way to start together."""

    mesh: Mesh
    device: jax.Device

    def run_together(
        self, what: str, program: str, launch: Callable[[], Sequence[jax.Array]]
    ) -> Sequence[jax.Array] | None:
        """The computed results of `launch()`, called once all replicas have come with this text and this program.

        None, on all replicas, if only the programs differ; `DistBackendError` if the texts do, or a replica has ended.
        """
        ...


# no cell: set once, when the process joins a job
class _Job:
    replication: Replication | None = None


def set_replication(replication: Replication | None) -> None:
    """Run programs with collectives on these devices; None is a job of one replica."""
    _Job.replication = replication
    set_replica_count(1 if replication is None else replication.mesh.size)


def replication() -> Replication | None:
    """The job of which this process is a replica; None if it is the only one."""
    return _Job.replication


class _WholeBody:
    """The body of a program as a function of the arrays of all replicas, which jax compiles.

    Along the first dim, such an array has a part for each replica. `scalars` says which arguments are scalars of the
    body: they get such a dim. Which results are is known once it is traced.
    """

    def __init__(
        self, body: Callable[..., Sequence[AnyArray]], donated: Sequence[int], scalars: Sequence[bool], *arrays: object
    ) -> None:
        self._body = body
        self._scalars = scalars
        self.scalar_results: list[bool] = []
        spec = PartitionSpec(AXIS)
        function = shard_map(self._of_replica, mesh=_job().mesh, in_specs=spec, out_specs=spec, check_vma=False)
        self.compiled: Arg = jit(function, donate_argnums=tuple(donated), compiler_options=KEEP_CASTS)
        self.checksum = _checksum(self.compiled.lower(*arrays).as_text())

    def _of_replica(self, *parts: AnyArray) -> list[AnyArray]:
        arguments = [x.reshape(()) if scalar else x for x, scalar in zip(parts, self._scalars, strict=True)]
        results = self._body(*arguments)
        self.scalar_results = [not result.ndim for result in results]
        return [x.reshape(1) if scalar else x for x, scalar in zip(results, self.scalar_results, strict=True)]


def replicated(
    body: Callable[..., Sequence[AnyArray]],
    donated: Sequence[int],
    signatures: Sequence[Signature],
    in_parts: Callable[[], Callable[..., Sequence[jax.Array]]] | None = None,
) -> Callable[..., Sequence[jax.Array]]:
    """The body as a program of all replicas, from and to this replica's arrays.

    `signatures` are those of its applications that have collectives. XLA may change the order of collectives, and does
    it differently in different programs. So where the replicas' programs differ in something else than these, each of
    them runs `in_parts()`, which does the same in programs with one application each that has collectives.
    """
    text, safe = _text(signatures), sum([exchange_count(signature.trace.closed) for signature in signatures]) < 2
    programs: dict[tuple[bool, ...], _WholeBody] = {}
    run_in_parts = cache(_refused if in_parts is None else in_parts)

    def run(*args: Arg) -> Sequence[jax.Array]:
        job = _job()  # processes may have joined anew
        scalars = tuple([x is not None and not np.ndim(x) for x in args])
        arrays = [None if x is None else _whole(x, job.mesh, job.device) for x in args]  # None: a pack without numbers
        if scalars not in programs:
            programs[scalars] = _WholeBody(body, donated, scalars, *arrays)
        program = programs[scalars]
        results = job.run_together(text, "" if safe else program.checksum, lambda: program.compiled(*arrays))
        if results is None:
            metrics.count("DifferentPrograms")
            return run_in_parts()(*args)
        return [_part(x, job.mesh.size, scalar) for x, scalar in zip(results, program.scalar_results, strict=True)]

    return run


def _refused() -> NoReturn:
    raise DistBackendError(
        "the replicas have compiled different functions that have several collectives each, whose order may differ: "
        "compile the same function on all replicas and call it with arguments of equal types and sizes, or do without "
        "compile"
    )


def of_one_replica(body: Callable[..., Sequence[AnyArray]]) -> Callable[..., Sequence[AnyArray]]:
    """A body with collectives as a function of one replica's arrays that can be lowered, but not run."""
    spec = PartitionSpec()
    return shard_map(body, mesh=_job().mesh, in_specs=spec, out_specs=spec, check_vma=False)


def _job() -> Replication:
    assert _Job.replication is not None, "there are collectives only in a job"
    return _Job.replication


def _whole(x: AnyArray, mesh: Mesh, device: jax.Device) -> jax.Array:
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
    calls = [f"{_call_text(s)} of {s.avals[0].dtype.name}{list(s.avals[0].shape)}" for s in signatures]
    checksum = _checksum("\n".join(f"{s.name} {s.avals} {s.call.static if s.call else ''}" for s in signatures))
    names = ", ".join(calls[:_MOST_NAMED])
    more = f" and {len(calls) - _MOST_NAMED} more" if len(calls) > _MOST_NAMED else ""
    return f"a program with {names[:_LONGEST_TEXT]}{more} ({checksum})"


def _checksum(text: str) -> str:
    return f"{crc32(text.encode()):08x}"


def _call_text(signature: Signature) -> str:
    """The name of a collective, with its arguments that are no tensors."""
    call = signature.call
    static = () if call is None else [x for x in call.static if x is not None and not isinstance(x, Many)]
    return f"{signature.name}({', '.join(map(str, static))})" if static else signature.name
