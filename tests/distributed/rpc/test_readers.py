"""A message is read for the agent that it came to, whatever agent the process or thread has."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

import weft as torch
from weft.distributed.rpc._contexts import Contexts, origin_of
from weft.distributed.rpc._message import Receiver, current_reader, pack, unpack
from weft.distributed.rpc._references import References
from weft.distributed.rpc._rref import RRef, _received_reference
from weft.distributed.rpc._state import here
from weft.distributed.rpc._workers import WorkerInfo

SENDER, FIRST, SECOND = (WorkerInfo(f"w{number}", number, 0) for number in range(3))


def agent(me):
    """As much of an agent as reading needs."""
    return SimpleNamespace(me=me, contexts=Contexts(me, lambda _: True), references=References(me[1:]), closing=True)


class Calls:
    """Is pickled as a call of a function, whose result is what is read."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


def packed(content, to=FIRST, context=None):
    message = None if context is None else context.message()
    return pack(content, Receiver(to, lambda device: device, message))


@pytest.fixture(autouse=True)
def no_agent_of_the_process():
    assert here().agent is None


def test_a_tensor_in_a_context_goes_to_the_context_of_its_reader():
    context = agent(SENDER).contexts.make()
    x = torch.ones(2, requires_grad=True)
    readers = [agent(FIRST), agent(SECOND)]
    for reader in readers:
        read = unpack(*packed(x * 2, reader.me, context), reader)
        assert read.tolist() == [2, 2]
        assert origin_of(read._read()).sender == SENDER
    for reader in readers:
        received = reader.contexts.existing(context.id)
        assert received.me == reader.me
        assert len(received.receipts) == 1


def test_a_reference_belongs_to_its_reader():
    owner, user = agent(FIRST), agent(SECOND)
    number = owner.references.number()
    owned = owner.references.create(number)
    owned.value.set_result(5)
    fork = owner.references.number()
    owner.references.add_fork(number, fork, SECOND[1:])
    body, _ = packed(Calls(_received_reference, FIRST, number, fork, FIRST))
    there, here = unpack(body, (), user), unpack(body, (), owner)
    assert isinstance(there, RRef)
    assert there == here
    assert (there.is_owner(), here.is_owner()) == (False, True)
    assert there.confirmed_by_owner()
    assert here.local_value() == 5


def read_by_another():
    inner = unpack(*packed(Calls(current_reader)), "another")
    return inner, current_reader()


def test_what_is_read_while_reading_has_a_reader_of_its_own():
    body, buffers = packed([Calls(current_reader), Calls(read_by_another), Calls(current_reader)])
    assert unpack(body, buffers, "one") == ["one", ("another", "one"), "one"]


def fail():
    raise ValueError("it cannot be read")


def test_nobody_reads_outside_of_messages():
    match = r"^this belongs to a worker, and can be unpickled from a message to one alone$"
    with pytest.raises(ValueError, match="it cannot be read"):
        unpack(*packed(Calls(fail)), "one")
    with pytest.raises(RuntimeError, match=match):
        current_reader()
    with pytest.raises(RuntimeError, match=match):
        unpack(*packed(Calls(current_reader)), None)


meeting = threading.Barrier(2)


def reader_after_meeting():
    meeting.wait(30)
    return current_reader()


def test_threads_read_for_different_agents():
    body, buffers = packed(Calls(reader_after_meeting))
    found = {}
    threads = [
        threading.Thread(target=lambda name=name: found.update({name: unpack(body, buffers, name)}))
        for name in ("one", "another")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"one": "one", "another": "another"}
