"""The disk of the log folder is full."""

import os
import re


def talk(job, disk, *flags, ending):
    return job.run(
        "--standalone",
        "--nproc-per-node",
        2,
        "--log-dir",
        disk / "logs",
        *flags,
        program="talk.py",
        args=(ending,),
        WEFT_PRELOAD="",
    )


def restarts(job):
    return [int((job.folder / f"go.{rank}").read_text()) for rank in range(2)]


def is_full(disk):
    return os.statvfs(disk).f_bavail == 0


def test_workers_go_on_without_logs(job, small_disk, run):
    disk = small_disk("size=256k")
    node = talk(job, disk, "--redirects", 3, ending="well")
    assert node.end() == 0, node.stderr
    assert (is_full(disk), restarts(job), node.stderr) == (True, [0, 0], "")


def test_what_is_shown_meanwhile_is_what_the_disk_took(job, small_disk, run):
    disk = small_disk("size=256k")
    node = talk(job, disk, "--tee", 3, ending="well")
    assert node.end() == 0, node.stderr
    assert "Traceback" not in node.stderr
    assert (is_full(disk), restarts(job)) == (True, [0, 0])


def test_a_job_starts_anew_on_a_full_disk(job, small_disk, run):
    disk = small_disk("size=256k")
    node = talk(job, disk, "--redirects", 3, "--max-restarts", 1, ending="badly")
    assert node.end() == 0, node.stderr
    assert (is_full(disk), 1 in restarts(job)) == (True, True)
    assert "Traceback" not in node.stderr


def test_a_failure_says_that_the_disk_is_full(job, small_disk, run):
    disk = small_disk("size=256k")
    node = talk(job, disk, "--redirects", 3, ending="badly")
    assert node.end() == 1
    told = rf"^rank [01] on .*: exit code 1; the disk that holds the logs in {disk}/logs/.*/attempt_0/[01] is full$"
    assert re.search(told, node.stderr, re.MULTILINE), node.stderr
    assert "Traceback" not in node.stderr


def test_no_room_for_folders_is_told(job, small_disk, run):
    node = talk(job, small_disk("nr_inodes=4"), ending="well")
    assert node.end() == 1
    assert re.fullmatch(r"weft run: error: \[Errno 28\] No space left on device: '.*/disk/logs/.*'", node.stderr)
