"""Collectives and messages in profiles."""

from __future__ import annotations

import weft
import weft.distributed as dist
from weft.autograd.profiler import profile


def _exchange():
    rank = dist.get_rank()
    x = weft.ones(2, 3)
    dist.all_reduce(x)
    work = dist.broadcast(x, 0, async_op=True)
    work.wait()
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(x, 0)
    dist.barrier()


def test_exchanges_are_events_from_their_begin_to_their_end():
    notes = []

    def work(rank):
        dist.init_process_group("gloo")
        if rank == 0:  # one profile notes all threads
            with profile(record_shapes=True) as profiled:
                dist.barrier()
                _exchange()
                dist.barrier()
            notes.append(profiled)
        else:
            dist.barrier()
            _exchange()
            dist.barrier()
        dist.destroy_process_group()

    dist.run_threads(work, nprocs=2)
    events = [event for event in notes[0].function_events if event.is_async]
    counts = {name: sum(event.name == name for event in events) for name in {event.name for event in events}}
    assert counts["gloo:all_reduce"] == counts["gloo:broadcast"] == 2
    assert counts["gloo:send"] == counts["gloo:recv"] == 1
    shapes = {event.name: event.input_shapes for event in events}
    assert shapes["gloo:all_reduce"] == shapes["gloo:send"] == shapes["gloo:recv"] == [[2, 3]]
    assert shapes["gloo:barrier"] == []
    assert all(event.cpu_time_total > 0 for event in events)


def test_waiting_for_a_message_is_time_with_other_ranks():
    profiles = []

    def work(rank):
        dist.init_process_group("gloo")
        x = weft.ones(3)
        if rank == 0:
            with profile() as notes:
                dist.recv(x, 1)
            profiles.append(notes)
            dist.send(x, 1)
        else:
            dist.send(x, 0)
            dist.recv(x, 0)
        dist.destroy_process_group()

    dist.run_threads(work, nprocs=2)
    (waited,) = [event for event in profiles[0].function_events if event.name == "wait: a message"]
    assert waited.cpu_time_total <= 1e6 * profiles[0].phases()["collective"] + 1e-3  # both are whole nanoseconds
