"""The exceptions that PyTorch raises for wrong arguments, so that programs which catch them need no change."""

from __future__ import annotations

from datetime import timedelta

import pytest

import weft as torch
import weft.distributed as dist
from tests.distributed.refusals import refuses
from weft import nn
from weft.distributed import HashStore, ReduceOp, distributed_c10d
from weft.distributed import _functional_collectives as functional_collectives
from weft.distributed._composable import replicate
from weft.distributed.algorithms.join import Join
from weft.distributed.device_mesh import init_device_mesh
from weft.distributed.fsdp import fully_shard
from weft.distributed.nn import functional


@pytest.fixture
def rank_0_of_2():
    dist.init_process_group("fake", rank=0, world_size=2)
    yield
    dist.destroy_process_group()


def x(size=1, dtype=torch.float32):
    return torch.ones(size, dtype=dtype)


def sparse():
    return x(2).to_sparse()


OUT_OF_RANGE = [
    (RuntimeError, "root rank", lambda root: dist.broadcast(x(), root)),
    (RuntimeError, "root rank", lambda root: dist.reduce(x(), root)),
    (RuntimeError, "root rank", lambda root: dist.gather(x(), None, root)),
    (RuntimeError, "root rank", lambda root: dist.scatter(x(), None, root)),
    (RuntimeError, "root rank", lambda root: dist.broadcast_object_list([1], root)),
    (RuntimeError, "root rank", lambda root: dist.gather_object(1, None, root)),
    (RuntimeError, "root rank", lambda root: dist.send(x(), root)),
    (RuntimeError, "root rank", lambda root: dist.irecv(x(), root)),
    (ValueError, "must NOT be specified on non-dest", lambda root: dist.gather(x(), [x(), x()], root)),
    (ValueError, "must NOT be specified on non-source", lambda root: dist.scatter(x(), [x(), x()], root)),
    (ValueError, "must NOT be specified on non-dest", lambda root: dist.gather_object(1, [None, None], root)),
]


@pytest.mark.parametrize("root", [2, -1])
@pytest.mark.parametrize(("kind", "text", "call"), OUT_OF_RANGE)
def test_ranks_outside_of_the_group(kind, text, call, root, rank_0_of_2):
    refuses(lambda: call(root), kind, text)


@pytest.mark.parametrize("root", ["a", 1.5])
@pytest.mark.parametrize(
    "call",
    [
        lambda root: dist.broadcast(x(), root),
        lambda root: dist.reduce(x(), root),
        lambda root: dist.gather(x(), None, root),
        lambda root: dist.scatter(x(), None, root),
        lambda root: dist.broadcast_object_list([1], root),
        lambda root: dist.gather_object(1, None, root),
    ],
)
def test_what_is_no_rank(call, root, rank_0_of_2):
    refuses(lambda: call(root), TypeError, "must be a rank, which is an integer, but got")


WRONG = [
    # messages
    (ValueError, "destination rank should not be the same", lambda: dist.send(x(), 0)),
    (RuntimeError, "destination rank should not be the same", lambda: dist.isend(x(), 0)),
    (RuntimeError, "source rank should not be the same", lambda: dist.recv(x(), 0)),
    (RuntimeError, "source rank should not be the same", lambda: dist.irecv(x(), 0)),
    (ValueError, "destination rank should not be the same", lambda: dist.send_object_list([1], 0)),
    (ValueError, "source rank should not be the same", lambda: dist.recv_object_list([1], 0)),
    (RuntimeError, "Tag must be nonnegative", lambda: dist.send(x(), 1, tag=-1)),
    (TypeError, "tag of a message must be an integer", lambda: dist.send(x(), 1, tag="a")),
    (TypeError, "`tensor` of type torch.Tensor", lambda: dist.send(3, 1)),
    (TypeError, "`tensor` of type torch.Tensor", lambda: dist.recv([x()], 1)),
    (ValueError, "group_dst", lambda: dist.send(x())),
    (ValueError, "group_dst", lambda: dist.send(x(), 1, group_dst=1)),
    (ValueError, "Invalid ``op``", lambda: dist.P2POp(dist.broadcast, x(), 1)),
    (ValueError, "group_peer", lambda: dist.P2POp(dist.isend, x())),
    (ValueError, "Invalid ``p2p_op_list``", lambda: dist.batch_isend_irecv([1, 2])),
    (ValueError, "Invalid ``p2p_op_list``", lambda: dist.batch_isend_irecv(dist.P2POp(dist.isend, x(), 1))),
    (IndexError, "is empty", lambda: dist.batch_isend_irecv([])),
    # collectives
    (TypeError, "`tensor` of type torch.Tensor", lambda: dist.all_reduce([x()])),
    (TypeError, "must be a ReduceOp", lambda: dist.all_reduce(x(), "sum")),
    (ValueError, "all_reduce does not support MAX", lambda: dist.all_reduce(x(dtype=torch.cfloat), ReduceOp.MAX)),
    (ValueError, "all_reduce does not", lambda: dist.all_reduce_coalesced([x(dtype=torch.cfloat)], ReduceOp.MAX)),
    (RuntimeError, "only works with ReduceOp.SUM", lambda: dist.all_reduce(sparse(), ReduceOp.MAX)),
    (NotImplementedError, "or x.to_dense", lambda: dist.all_reduce(torch.ones(2, 2).to_sparse_csr())),
    (NotImplementedError, "layout torch.sparse_coo", lambda: dist.all_reduce_coalesced([sparse()])),
    (NotImplementedError, "layout torch.sparse_coo", lambda: dist.reduce(sparse(), 0)),
    (NotImplementedError, "layout torch.sparse_coo", lambda: dist.broadcast(sparse(), 0)),
    (NotImplementedError, "layout torch.sparse_coo", lambda: dist.all_gather([sparse()] * 2, sparse())),
    (NotImplementedError, "layout torch.sparse_coo", lambda: dist.send(sparse(), 1)),
    (ValueError, "group_src", lambda: dist.broadcast(x(), 0, group_src=0)),
    (ValueError, "must be specified on destination", lambda: dist.gather(x())),
    (ValueError, "must be specified on source", lambda: dist.scatter(x())),
    (RuntimeError, "2 ranks", lambda: dist.gather(x(), [x()])),
    (RuntimeError, "2 ranks", lambda: dist.all_gather([x()], x())),
    (ValueError, "different dtypes", lambda: dist.all_gather([x(), x()], x(dtype=torch.float64))),
    (TypeError, "must be a list", lambda: dist.all_gather_coalesced(3, [x()])),
    (RuntimeError, "2 ranks", lambda: dist.all_gather_coalesced([[x()]], [x()])),
    (RuntimeError, "has 1 tensors", lambda: dist.all_gather_coalesced([[x()], [x()]], [x(), x()])),
    (RuntimeError, "dtypes", lambda: dist.all_gather_into_tensor(x(2), x(dtype=torch.float64))),
    (RuntimeError, "shape", lambda: dist.all_gather_into_tensor(x(3), x())),
    (RuntimeError, "2 ranks", lambda: dist.reduce_scatter(x(), [x()])),
    (RuntimeError, "shape", lambda: dist.reduce_scatter_tensor(x(), x(3))),
    (RuntimeError, "2 ranks", lambda: dist.all_to_all([x()], [x()])),
    (RuntimeError, "Split sizes", lambda: dist.all_to_all_single(x(4), x(4), [1, 1], [1, 1])),
    (TypeError, "must be integers", lambda: dist.all_to_all_single(x(2), x(2), "a", "b")),
    (IndexError, "has no dims", lambda: dist.all_to_all_single(x(()), x(()), [1, 0], [1, 0])),
    (TypeError, "timedelta", lambda: dist.monitored_barrier(timeout=1)),
    # functions that return new tensors
    (RuntimeError, "root rank", lambda: functional.broadcast(x(), 9)),
    (RuntimeError, "root rank", lambda: functional.gather(x(), 9)),
    (RuntimeError, "root rank", lambda: functional.reduce(x(), 9)),
    (RuntimeError, "root rank", lambda: functional_collectives.broadcast(x(), 9, dist.group.WORLD)),
    (RuntimeError, "bogus", lambda: functional_collectives.all_reduce(x(), "bogus", dist.group.WORLD)),
    # objects
    (IndexError, "2 ranks", lambda: dist.all_gather_object([None], 1)),
    (TypeError, "must be a list", lambda: dist.all_gather_object(3, 1)),
    (ValueError, "must be specified on destination", lambda: dist.gather_object(1)),
    (TypeError, "must be a list", lambda: dist.broadcast_object_list(None, 1)),
    (ValueError, "size at least 1", lambda: dist.scatter_object_list([], [1, 2])),
    (ValueError, "non-None scatter_object_input_list", lambda: dist.scatter_object_list([None])),
    (RuntimeError, "2 ranks", lambda: dist.scatter_object_list([None], [1])),
    # groups
    (ValueError, "twice", lambda: dist.new_group([0, 0])),
    (ValueError, "rank -1", lambda: dist.new_group([-1])),
    (TypeError, "timedelta", lambda: dist.new_group([0], timeout=3)),
    (ValueError, "use_local_sync", lambda: dist.new_group([0], backend="mpi", use_local_synchronization=True)),
    (ValueError, "must be positive", lambda: dist.new_subgroups(0)),
    (ValueError, "must not exceed the world size", lambda: dist.new_subgroups(100)),
    (ValueError, "cannot be empty", lambda: dist.new_subgroups_by_enumeration([])),
    (ValueError, "rank 2", lambda: dist.new_subgroups_by_enumeration([[0, 1], [2, 3]])),
    (ValueError, "Rank 1 has appeared in both", lambda: dist.new_subgroups_by_enumeration([[0, 1], [1]])),
    (ValueError, "cannot be None or empty", lambda: dist.split_group(split_ranks=[])),
    (ValueError, "not part of group", lambda: dist.get_global_rank(dist.new_group([0]), 1)),
    (ValueError, "not part of group", lambda: dist.get_group_rank(dist.new_group([0]), 1)),
    (ValueError, "Invalid process group", lambda: dist.get_backend(dist.new_group([1]))),
    (TypeError, "must be a list", lambda: dist.shrink_group(3)),
    (ValueError, "not registered for device", lambda: dist.get_default_backend_for_device("meta")),
    # joining
    (ValueError, "twice", lambda: dist.init_process_group("gloo", rank=0, world_size=1, store=HashStore())),
]


@pytest.mark.parametrize(("kind", "text", "call"), WRONG)
def test_wrong_arguments(kind, text, call, rank_0_of_2):
    refuses(call, kind, text)


def replica(module=None, **options):
    return nn.parallel.DistributedDataParallel(module or nn.Linear(2, 2), **options)


def mesh(*shape):
    return init_device_mesh("cpu", shape)


def untyped(state, bucket):
    return bucket


def of_integers(state, bucket):
    return bucket


def to_integers(state, bucket):
    return bucket


of_integers.__annotations__ = {"bucket": int}  # not as texts, which are not looked into
to_integers.__annotations__ = {"return": int}


def hooked(*hooks):
    module = replica()
    for hook in hooks:
        module.register_comm_hook(None, hook)


def joins_nothing():
    with Join([]):
        pass


REPLICAS = [
    (RuntimeError, "any parameter that requires a gradient", lambda: replica(nn.ReLU())),
    (RuntimeError, "any parameter that requires a gradient", lambda: replica(nn.Linear(2, 2).requires_grad_(False))),
    (RuntimeError, "uninitialized parameters", lambda: replica(nn.LazyLinear(2))),
    (ValueError, "contain a single element", lambda: replica(device_ids=[0, 1])),
    (ValueError, "device_ids and output_device", lambda: replica(device_ids=[0])),
    (
        ValueError,
        r"same type of devices.*\['cpu', 'meta'\]",
        lambda: replica(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))),
    ),
    (RuntimeError, "both process_group and", lambda: replica(process_group=dist.group.WORLD, device_mesh=mesh(2))),
    (RuntimeError, "Only 1D device mesh", lambda: replica(device_mesh=mesh(1, 2))),
    (TypeError, "must be callable", lambda: hooked({})),
    (ValueError, "bucket annotation", lambda: hooked(of_integers)),
    (ValueError, "return annotation", lambda: hooked(to_integers)),
    (RuntimeError, "once", lambda: hooked(untyped, untyped)),
    (TypeError, "BuiltinCommHookType", lambda: replica()._register_builtin_comm_hook("x")),
    (ValueError, "equal or greater than 1", lambda: replica()._set_ddp_runtime_logging_sample_rate(0)),
    (RuntimeError, "already managed by `fully_shard`", lambda: replicate(fully_shard(nn.Linear(2, 2)))),
    (ValueError, "at least one joinable", joins_nothing),
]


@pytest.mark.parametrize(("kind", "text", "call"), REPLICAS)
def test_replicas(kind, text, call, rank_0_of_2):
    refuses(call, kind, text)


def join(backend="gloo", rank=0, world_size=1, store=None, **options):
    dist.init_process_group(backend, rank=rank, world_size=world_size, store=store or HashStore(), **options)


BEFORE_JOINING = [
    (ValueError, "string-ish", lambda: dist.Backend(None)),
    (ValueError, "Invalid device:backend pairing", lambda: dist.BackendConfig("cpu:gloo,cuda")),
    (ValueError, "Duplicate device type", lambda: dist.BackendConfig("cpu:gloo,cpu:gloo")),
    (ValueError, "Invalid device:backend pairing", lambda: join("cpu:gloo,")),
    (AssertionError, "Unknown backend type", lambda: join("pigeon")),
    (RuntimeError, "rank is 2 and world_size 1", lambda: join(rank=2)),
    (AssertionError, "rank must be non-negative", lambda: join(rank=-1)),
    (AssertionError, "both init_method and store", lambda: join(init_method="file:///tmp/x")),
    (TypeError, "timedelta", lambda: join(timeout=3)),
    (ValueError, "must be an accelerator", lambda: join(device_id=torch.device("cpu"))),
    (RuntimeError, "No rendezvous handler", lambda: next(dist.rendezvous("invalid://"))),
    (ValueError, "path missing", lambda: next(dist.rendezvous("file://?rank=0&world_size=1"))),
    (ValueError, "rank parameter missing", lambda: next(dist.rendezvous("file:///tmp/foo?world_size=1"))),
    (ValueError, "size parameter missing", lambda: next(dist.rendezvous("file:///tmp/foo?rank=0"))),
    (AssertionError, "node-specific", lambda: next(dist.rendezvous("file://foo?rank=1&world_size=2", 1, 2))),
    (ValueError, "not been initialized", dist.get_rank),
    (ValueError, "not been initialized", lambda: dist.all_reduce(x())),
    (ValueError, "not been initialized", distributed_c10d._get_default_store),
    (AssertionError, "cannot be None", dist.destroy_process_group),
]


@pytest.mark.parametrize(("kind", "text", "call"), BEFORE_JOINING)
def test_before_joining(kind, text, call):
    refuses(call, kind, text)


STORES = [
    (RuntimeError, "(?i)timed? ?out|timeout", lambda store: store.get("x")),
    (RuntimeError, "(?i)timed? ?out|timeout", lambda store: store.wait(["x"], timedelta(milliseconds=1))),
    (ValueError, "not a number", lambda store: (store.set("x", "abc"), store.add("x", 1))),
    (TypeError, ".", lambda store: store.set(1, "y")),
    (TypeError, ".", lambda store: store.set("x", 1)),
    (TypeError, ".", lambda store: store.add("x", "y")),
    (TypeError, ".", lambda store: store.wait("x", "a")),
    (TypeError, ".", lambda store: store.set_timeout("a")),
]


@pytest.mark.parametrize(("kind", "text", "call"), STORES)
def test_stores(kind, text, call):
    store = HashStore()
    store.set_timeout(timedelta(milliseconds=1))
    refuses(lambda: call(store), kind, text)
