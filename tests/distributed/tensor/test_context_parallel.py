"""Sequences of which each process has a part: attention over parts, and buffers that are divided."""

from __future__ import annotations

import copy
import weakref
from itertools import product

import numpy as np
import pytest

import weft as torch
import weft.distributed as dist
from tests.distributed.tensor.test_dtensor import Block
from tests.distributed.tensor.threads import WHOLE, on_mesh
from weft import nn
from weft._base.state import ambient, using
from weft.distributed._observers import observe, stop_observing
from weft.distributed.tensor import Shard, distribute_tensor
from weft.distributed.tensor.experimental import context_parallel
from weft.distributed.tensor.experimental._attention import _cp_options, context_parallel_unshard, set_rotate_method
from weft.errors import UnsupportedError
from weft.nn.functional import scaled_dot_product_attention
from weft.utils.checkpoint import checkpoint

METHODS = ["allgather", "alltoall"]
STEPS = 50 if WHOLE else 3


def random(*size):
    return torch.randn(*size, dtype=torch.float64)


def attended(function, inputs, grad):
    """The result of attention and the gradients of its inputs."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    result = function(*leaves)
    result.backward(grad)
    return [result.detach(), *(x.grad for x in leaves)]


@pytest.mark.parametrize(("ranks", "is_causal"), list(product((1, 2, 4), (False, True))))
def test_attention_over_parts_is_that_of_whole_sequences(ranks, is_causal):
    lengths, heads = (8, 12), ((4, 4, {}), (4, 2, {"enable_gqa": True, "scale": 0.3}))

    def program(mesh):
        for length, (own, shared, options), method in product(lengths, heads, METHODS):
            set_rotate_method(method)
            torch.manual_seed(length)
            query, key, value = random(2, own, length, 3), random(2, shared, length, 3), random(2, shared, length, 5)
            grad = random(2, own, length, 5)

            def attention(*inputs, options=options):
                return scaled_dot_product_attention(*inputs, is_causal=is_causal, **options)

            expected = attended(attention, (query, key, value), grad)
            buffers = [query, key, value, grad]
            with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[2, 2, -2, 2]):
                assert query.shape[2] == length // ranks
                found = attended(attention, buffers[:3], grad)
            assert query.shape[2] == length
            for whole, other in zip(context_parallel_unshard(mesh, found, [2] * 4), expected, strict=True):
                np.testing.assert_allclose(whole, other, rtol=1e-9, atol=1e-12)

    on_mesh((ranks,), program)


def test_a_rank_has_both_ends_of_a_sequence_unless_its_length_is_odd_or_the_option_off():
    def program(mesh):
        parts = []
        for length, enabled in ((8, True), (6, True), (8, False)):
            _cp_options.enable_load_balance = enabled
            x = torch.arange(length)
            with context_parallel(mesh, buffers=[x], buffer_seq_dims=[0]):
                parts.append(x.tolist())
                (whole,) = context_parallel_unshard(mesh, [x], [0])
            assert whole.tolist() == x.tolist() == list(range(length))
        return parts

    assert on_mesh((2,), program) == [
        [[0, 1, 6, 7], [0, 1, 2], [0, 1, 2, 3]],
        [[2, 3, 4, 5], [3, 4, 5], [4, 5, 6, 7]],
    ]


def test_queries_may_attend_to_sequences_of_another_length():
    def program(mesh):
        torch.manual_seed(0)
        query, memory = random(2, 4, 3), random(2, 8, 3)
        expected = scaled_dot_product_attention(query, memory, memory)
        parts = [x.chunk(2, 1)[mesh.get_rank()] for x in (query, memory)]
        with context_parallel(mesh):
            part = scaled_dot_product_attention(parts[0], parts[1], parts[1])
            with pytest.raises(NotImplementedError, match=r"requires the same query and context sequence lengths, but"):
                scaled_dot_product_attention(parts[0], parts[1], parts[1], is_causal=True)
        np.testing.assert_allclose(part, expected.chunk(2, 1)[mesh.get_rank()], rtol=1e-9)

    on_mesh((2,), program)


def test_names_types_and_distributed_tensors():
    def program(mesh):
        torch.manual_seed(0)
        x = torch.randn(2, 2, 8, 4)
        with context_parallel(mesh, buffers=[x], buffer_seq_dims=[2]):
            named = x.refine_names("batch", "head", "time", "feature")
            assert scaled_dot_product_attention(named, named, named).names == named.names
            with torch.autocast("cpu"):
                low = scaled_dot_product_attention(x, x, x, is_causal=True)
            assert low.dtype == torch.bfloat16
            assert scaled_dot_product_attention(x.half(), x.half(), x.half()).dtype == torch.float16
            full = scaled_dot_product_attention(x, x, x, is_causal=True)
            assert torch.allclose(low.float(), full, atol=0.05)
            split = torch.distributed.tensor.DTensor.from_local(x, mesh, [Shard(2)])
            assert torch.equal(scaled_dot_product_attention(split, split, split, is_causal=True), full)
        other = distribute_tensor(x, mesh, [Shard(1)])
        with (
            context_parallel(mesh),
            pytest.raises(RuntimeError, match=r"DTensors with \(Shard\(2\),\) on its mesh, but"),
        ):
            scaled_dot_product_attention(other, other, other)

    on_mesh((2,), program)


class Most:
    """Counts, whenever a rank sends, how many of the tensors that were sent before are in memory."""

    def __init__(self):
        self.sent = []
        self.alive = []

    def on_collective(self, name, values, *, requested):
        self.alive.append(len({id(value) for ref in self.sent if (value := ref()) is not None}))
        self.sent += map(weakref.ref, values)


def test_no_rank_has_all_scores_or_sends_for_all_keys_at_once():
    length, ranks = 32, 4

    def program(mesh):
        set_rotate_method("alltoall")
        parts = [random(1, 1, length // ranks, 2).requires_grad_() for _ in range(3)]
        sizes, counting = [], Most()

        def note(values):
            origin = values[0].origin
            if origin is not None and origin.signature.name.startswith("attention"):
                sizes.extend(max(v.aval.shape[2] for v in values[0].inputs) for _ in values)

        observe(counting)
        with context_parallel(mesh), using(observers=(note,)):
            query, key, value = parts
            scaled_dot_product_attention(query, key, value, is_causal=True).sum().backward()
        stop_observing(counting)
        return max(sizes), max(counting.alive)

    for most, alive in on_mesh((ranks,), program):
        assert most == length // ranks  # so scores are (8, 8)
        assert alive <= 4  # one's own keys and values, and those of another, or their gradients


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(32, 16), nn.Embedding(16, 16)
        self.blocks, self.head = nn.Sequential(Block(16, 4), Block(16, 2)), nn.Linear(16, 32)

    def forward(self, tokens, positions):
        return self.head(self.blocks(self.words(tokens) + self.positions(positions)))


def losses_of(model, tokens, mesh=None, steps=STEPS):
    """The losses of some steps, on whole sequences or, with a mesh, on parts."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        inputs, targets, positions = tokens[step % 2, :, :-1], tokens[step % 2, :, 1:], torch.arange(16)
        optimizer.zero_grad()
        if mesh is None:
            loss = nn.functional.cross_entropy(model(inputs, positions).flatten(0, 1), targets.flatten())
            loss.backward()
        else:
            buffers = [inputs.clone(), targets.clone(), positions]
            with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[1, 1, 0], no_restore_buffers=set(buffers)):
                loss = nn.functional.cross_entropy(model(buffers[0], buffers[2]).flatten(0, 1), buffers[1].flatten())
                loss.backward()
            for value in (loss.data, *(p.grad for p in model.parameters())):
                dist.all_reduce(value, dist.ReduceOp.AVG)
        optimizer.step()
        losses.append(loss.item())
    return losses


def follow_one_process(mesh):
    """Require that a model trains on parts of sequences as it does on whole ones."""
    torch.manual_seed(0)
    plain = Model().double()
    model, tokens = copy.deepcopy(plain), torch.randint(0, 32, (2, 2, 17))
    np.testing.assert_allclose(losses_of(model, tokens, mesh), losses_of(plain, tokens), rtol=1e-9)


@pytest.mark.parametrize(("ranks", "method"), [(2, "allgather"), (4, "alltoall")])
def test_a_language_model_trains_as_in_one_process(ranks, method):
    def program(mesh):
        set_rotate_method(method)
        follow_one_process(mesh)

    on_mesh((ranks,), program)


def test_a_checkpointed_function():
    def program(mesh):
        torch.manual_seed(0)
        x, grad = random(1, 8, 4), torch.ones(1, 8, 4).double()

        def function(x):
            return scaled_dot_product_attention(x * 2, x, x.sin(), is_causal=True)

        expected = attended(function, [x], grad)
        with context_parallel(mesh, buffers=[x, grad], buffer_seq_dims=[1, 1]):
            found = attended(lambda x: checkpoint(function, x), [x], grad)
        for whole, other in zip(context_parallel_unshard(mesh, found, [1, 1]), expected, strict=True):
            np.testing.assert_allclose(whole, other, rtol=1e-9)

    on_mesh((2,), program)


def test_a_compiled_function_is_captured_anew_where_sequences_are_split():
    def program(mesh):
        torch.manual_seed(0)
        x = random(1, 8, 4)
        compiled = torch.compile(lambda x: scaled_dot_product_attention(x, x, x))
        expected = [compiled(x) for _ in range(3)][-1]
        with context_parallel(mesh, buffers=[x], buffer_seq_dims=[1]):
            results = [compiled(x) for _ in range(3)]
        for found in results:
            assert torch.allclose(context_parallel_unshard(mesh, [found], [1])[0], expected)
        assert torch.allclose(compiled(x), expected)

    on_mesh((2,), program)


def test_buffers_come_back_after_an_error():
    def program(mesh):
        x, kept = torch.arange(8.0), torch.arange(8.0)
        view = x[2:]
        whole = context_parallel(mesh, buffers=[x, kept], buffer_seq_dims=[0, 0], no_restore_buffers={kept})
        with pytest.raises(RuntimeError, match="must match the size"), whole:
            x.add_(torch.ones(3))
        with context_parallel(mesh, buffers=[x], buffer_seq_dims=[0]):
            x.add_(1)
        assert x.tolist() == list(range(8))
        assert view.tolist() == list(range(2, 8))
        assert kept.shape == (4,)
        assert ambient().context.attention is None

    on_mesh((2,), program)


def test_what_cannot_be_divided_is_refused():
    def program(mesh):
        x, odd = torch.ones(8, 2), torch.ones(7)

        def refused(error, match, **arguments):
            with pytest.raises(error, match=match), context_parallel(mesh, **arguments):
                pass
            assert (x.shape, odd.shape) == ((8, 2), (7,))

        refused(
            ValueError, "the sequence length 7 must be divisible by the 2 processes", buffers=[odd], buffer_seq_dims=[0]
        )
        refused(ValueError, r"one sequence length, but have \[8, 7\]", buffers=[x, odd], buffer_seq_dims=[0, 0])
        refused(ValueError, r"same number of elements as `buffers`. Found 0 dims for 1 buffers", buffers=[x])
        refused(IndexError, r"dim 2 is out of range for a buffer of size \[8, 2\]", buffers=[x], buffer_seq_dims=[2])
        refused(ValueError, "must be a subset of `buffers`", buffers=[], no_restore_buffers={x})
        refused(ValueError, "Unknown buffer type: <class 'list'>", buffers=[[1, 2]], buffer_seq_dims=[0])
        parameter = nn.Parameter(torch.ones(8))
        refused(
            RuntimeError,
            r"^cannot resize variables that require grad: buffer 1 of context_parallel is a Parameter",
            buffers=[x, parameter],
            buffer_seq_dims=[0, 0],
        )
        with pytest.raises(
            NotImplementedError, match="does not support using ring for kv shards rotation; the methods"
        ):
            set_rotate_method("ring")

    on_mesh((2,), program)


def test_what_attention_over_parts_lacks_is_refused():
    def program(mesh):
        line, x = mesh["cp"], torch.ones(1, 2, 4, 4)
        with pytest.raises(
            RuntimeError, match=r"takes a mesh of one dim, but got one with 2; slice it, as mesh\['cp'\]"
        ):
            context_parallel(mesh).__enter__()
        with context_parallel(line):
            with pytest.raises(UnsupportedError, match="an attn_mask is not supported yet; use is_causal"):
                scaled_dot_product_attention(x, x, x, torch.ones(4, 4))
            with pytest.raises(NotImplementedError, match=r"dropout_p = 0\.1 is not supported yet"):
                scaled_dot_product_attention(x, x, x, dropout_p=0.1)
            layer = nn.MultiheadAttention(4, 2, batch_first=True)
            with pytest.raises(NotImplementedError, match="pass need_weights=False"):
                layer(x[0], x[0], x[0])
            assert layer(x[0], x[0], x[0], need_weights=False)[0].shape == (2, 4, 4)

    on_mesh((1, 1), program, ("dp", "cp"))
