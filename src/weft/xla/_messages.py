"""Messages from one replica to another, by channels."""

from __future__ import annotations

import numpy as np

from weft._base.state import using
from weft._comm.stores import keys
from weft._tensor.convert import from_host
from weft._tensor.tensor import Tensor
from weft.distributed._group_xla import XlaBackend
from weft.errors import ShapeError, XlaError
from weft.xla._replicas import replicas


def send(value: Tensor, channel_id: int) -> Tensor:
    """Send a tensor to the replica that receives from the channel; returns the tensor.

    A channel leads from one replica to one other at a time. The message passes through the job's store, outside of
    programs.
    """
    backend = _backend("send")
    content = value._host().tobytes()
    number = backend.store.add(keys.sent(channel_id), 1)
    backend.store.set(keys.message(channel_id, number), content)
    return value


def recv(output: Tensor, channel_id: int) -> Tensor:
    """Wait for the next tensor of a channel, and write it to `output`, which has its shape and type; returns that."""
    backend = _backend("recv")
    key = keys.message(channel_id, backend.store.add(keys.received(channel_id), 0) + 1)
    content = backend.store.get(key)
    backend.store.add(keys.received(channel_id), 1)  # not before, so that an interrupted wait loses no message
    backend.store.delete_key(key)
    if len(content) != output.nbytes:
        raise ShapeError(
            f"recv: channel {channel_id} has sent {len(content)} bytes, and a {output.dtype} of size "
            f"{list(output.shape)} has {output.nbytes}"
        )
    with using(grad=False):
        output.copy_(from_host(np.frombuffer(content, output.dtype.numpy).reshape(output.shape)))
    return output


def _backend(name: str) -> XlaBackend:
    backend = replicas().backend
    if backend is None:
        raise XlaError(f"{name}: there is one replica; start several by xla_multiprocessing.spawn")
    return backend
