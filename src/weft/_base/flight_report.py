"""The report of a job that has failed, or hangs, from the flight recordings of its ranks."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from weft._base.flight import RECORDING, STACKS, Entry, Recording, State, read_recording

NOTHING = "  nothing"
"""The line that says that no rank was waiting."""

_MOST_EVENTS = 8  # of a kind and rank


class Collective(NamedTuple):
    """A collective as one rank has called it; `number` counts those of the group. Or a message, with the number 0."""

    operation: str
    group: str
    number: int
    ranks: str
    types: str
    site: str
    entry: Entry


class _Job(NamedTuple):
    """The ranks of a job at a time (see `crash_report`), by their numbers."""

    recordings: Mapping[int, tuple[Recording, Path]]
    now: float
    stopped: Collection[int]
    exit_codes: Mapping[int, int]

    def fate(self, rank: int) -> str:
        """What has become of a rank's process; empty where it runs, or nothing is known."""
        code = self.exit_codes.get(rank)
        if code is not None:
            return f"has ended with exit code {code}" if code >= 0 else f"was ended by {_signal_name(-code)}"
        if rank in self.stopped:
            return "was stopped by a signal"
        ended = self.recordings[rank][0].ended if rank in self.recordings else 0.0
        return f"has ended {self.now - ended:.3f} s before" if 0 < ended <= self.now else ""

    def where(self, rank: int) -> list[str]:
        """What is known of a rank that others wait for, as a line, if anything is."""
        facts = [f"it {fate}"] if (fate := self.fate(rank)) else []
        if last := self._last(rank):
            facts.append(f"its last record, {last}")
        return [f"    rank {rank}: {'; '.join(facts)}"] if facts else []

    def _last(self, rank: int) -> str:
        """A rank's last collective, message or program."""
        if rank not in self.recordings:
            return ""
        recording, now = self.recordings[rank][0], self.now
        events = [
            (each.entry, f"{each.operation} of the group {each.group!r}", each.site)
            for each in collectives_of(recording, now)[-1:]
        ]
        events += [(entry, f"a program ({kind})", site) for entry, kind, _, site in _programs_of(recording, now)[-1:]]
        if not events:
            return ""
        entry, what, site = max(events, key=lambda event: event[0].called)
        return f"{now - entry.called:.3f} s before: {what} at {site}: {_state(entry, now)}"


def crash_report(
    folder: str | os.PathLike[str],
    *,
    at: float | None = None,
    stopped: Collection[int] = (),
    exit_codes: Mapping[int, int] | None = None,
) -> str:
    """What the ranks of a job were doing, from all flight recordings in a folder and in folders below it.

    It begins with what ranks were waiting for, and who was missing. Then follow, for each rank, its last collectives
    and programs with the lines that have called them, its exception with the last operators that were recorded and not
    computed, and the stacks of its threads, unless it was killed by SIGKILL. `at` is the time of the failure, in
    seconds since the epoch: what has happened later is left out, and durations end there. By default it is now.
    `stopped` are ranks that a signal has stopped, `exit_codes` those of ranks that had ended, negative for a signal.
    `FileNotFoundError` if there is no recording.
    """
    recordings: dict[int, tuple[Recording, Path]] = {}
    for path in sorted(Path(folder).rglob(RECORDING)):
        recording = read_recording(path)
        recordings[recording.rank] = recording, path.parent
    if not recordings:
        raise FileNotFoundError(f"{folder} has no {RECORDING}: no process has recorded there")
    job = _Job(recordings, time.time() if at is None else at, stopped, exit_codes or {})
    lines = ["What ranks were waiting for:", *(_waiting(job) or [NOTHING])]
    for rank in sorted(recordings):
        recording, place = recordings[rank]
        fate = job.fate(rank)
        lines += ["", f"Rank {rank} (process {recording.process}{f', which {fate}' if fate else ''})"]
        lines += _of_rank(recording, place, job.now)
    return "\n".join(lines) + "\n"


def _waiting(job: _Job) -> list[str]:
    """The messages and collectives that have not ended well, with lines of ranks, and the ranks that are missing."""
    last: dict[str, dict[int, Collective]] = {}
    unfinished: dict[int, list[Collective]] = {rank: [] for rank in job.recordings}
    lines: list[str] = []
    for rank, (recording, _) in job.recordings.items():
        for each in collectives_of(recording, job.now):
            if each.number:
                last.setdefault(each.group, {})[rank] = each
            if _is_unfinished(each.entry, job.now):
                unfinished[rank].append(each)
                if not each.number:
                    what = f"{each.operation} of the group {each.group!r}"
                    lines.append(f"  rank {rank}: {what}: {_state(each.entry, job.now)}  {each.types}  {each.site}")
                    other = each.operation.rpartition(" ")[2]  # as in "receive from rank 1"
                    lines += job.where(int(other)) if other.isdecimal() else []
    for group, by_rank in last.items():
        newest = max(by_rank.values(), key=lambda each: each.number)
        here = {rank: each for rank, each in by_rank.items() if each.number == newest.number}
        if any(_is_unfinished(each.entry, job.now) for each in here.values()):
            lines += _of_group(group, newest, here, by_rank, unfinished, job)
    return lines


def _of_group(
    group: str,
    newest: Collective,
    here: Mapping[int, Collective],
    by_rank: Mapping[int, Collective],
    unfinished: Mapping[int, list[Collective]],
    job: _Job,
) -> list[str]:
    now = job.now
    lines = [f"  {newest.operation}, number {newest.number} of the group {group!r} (ranks {newest.ranks})"]
    lines += [f"    rank {rank}: {_state(each.entry, now)}  {each.types}  {each.site}" for rank, each in here.items()]
    members = [int(rank) for rank in newest.ranks.split(",") if rank.isdecimal()]
    missing = [rank for rank in members if rank not in here]
    for rank in missing:
        before = by_rank.get(rank)
        text = (
            "has not recorded anything on this node"
            if rank not in unfinished
            else "has called none of the group's collectives"
        )
        if elsewhere := unfinished.get(rank):
            other = elsewhere[-1]
            what = f"{other.operation} of the group {other.group!r} at {other.site}"
            text = f"it has called {what} instead: {_state(other.entry, now)}"
        elif before is not None:
            what = f"number {before.number}, {before.operation} at {before.site}"
            text = f"last called {what}: {_state(before.entry, now)}"
        if rank not in job.stopped and (fate := job.fate(rank)):
            text += f"; it {fate}"
        lines.append(f"    rank {rank} is MISSING: {text}")
    failed = [each for each in here.values() if not _is_open(each.entry, now) and each.entry.missing]
    if failed:
        first = min(failed, key=lambda each: each.entry.ended)
        lines.append(f"    it has failed because of {_ranks(first.entry.missing)}")
    if culprits := sorted({*job.stopped} & {*members}):
        lines.append(f"    stopped by a signal: {_ranks(culprits)}")
    return lines


def collectives_of(recording: Recording, now: float) -> list[Collective]:
    """A rank's collectives up to a time."""
    result: list[Collective] = []
    for entry in recording.collectives:
        if entry.called <= now and len(entry.fields) == 6:
            operation, group, number, ranks, types, site = entry.fields
            result.append(Collective(operation, group, int(number), ranks, types, site, entry))
    return result


def _programs_of(recording: Recording, now: float) -> list[tuple[Entry, str, str, str]]:
    """A rank's programs up to a time: with kind, operators and site."""
    return [(entry, *entry.fields) for entry in recording.programs if entry.called <= now and len(entry.fields) == 3]


def _of_rank(recording: Recording, folder: Path, now: float) -> list[str]:
    lines = ["  last collectives:"]
    lines += [
        f"    {_ago(each.entry, now)} #{each.number} of {each.group!r}  {each.operation}  {each.types}  "
        f"{_state(each.entry, now)}  {each.site}"
        for each in collectives_of(recording, now)[-_MOST_EVENTS:]
    ]
    lines.append("  last programs:")
    lines += [
        f"    {_ago(entry, now)} {kind}  {_state(entry, now)}  {site}\n      {operators}"
        for entry, kind, operators, site in _programs_of(recording, now)[-_MOST_EVENTS:]
    ]
    error, stacks = _exception(folder / "error.json"), folder / STACKS
    if error:
        lines += ["  exception:", *_indented(error)]
    if stacks.is_file() and (text := stacks.read_text(errors="replace").strip()):
        lines += ["  stacks of its threads at its end:", *_indented(text)]
    return lines


def _exception(path: Path) -> str:
    try:
        message = json.loads(path.read_text())["message"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    if isinstance(message, str):
        return message
    extra = message.get("extraInfo", {})
    return "\n".join(filter(None, [extra.get("py_callstack") or message.get("message"), extra.get("last_operators")]))


def _indented(text: str) -> Iterable[str]:
    return ["    " + line for line in text.rstrip().split("\n")]


def _is_open(entry: Entry, now: float) -> bool:
    return not entry.ended or entry.ended > now


def _is_unfinished(entry: Entry, now: float) -> bool:
    """Whether it has not ended, or failed."""
    return _is_open(entry, now) or entry.state is State.FAILED


def _ago(entry: Entry, now: float) -> str:
    return f"{now - entry.called:8.3f} s before:"


def _state(entry: Entry, now: float) -> str:
    if _is_open(entry, now):
        if not 0 < entry.started <= now:
            return f"not begun {now - entry.called:.3f} s after the call"
        return f"running for {now - entry.started:.3f} s"
    return f"{entry.state.name.lower()} after {entry.ended - (entry.started or entry.called):.3f} s"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # of real time
        return f"signal {number}"


def _ranks(ranks: Collection[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
