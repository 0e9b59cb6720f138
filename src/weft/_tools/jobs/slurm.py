"""A batch script for Slurm."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator

from weft._tools.jobs.manifest import Job

_KEY = "head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \\n'"


def slurm(job: Job) -> str:
    """The text of a script for `sbatch`: one `weft run` on each node; the first node serves a c10d rendezvous."""
    return "\n".join(_lines(job)) + "\n"


def _lines(job: Job) -> Iterator[str]:
    yield "#!/bin/bash"
    yield from (f"#SBATCH {option}" for option in _options(job))
    yield "# Add what your cluster asks for, such as --time, --partition, --account, --gpus-per-node."
    yield "set -euo pipefail"
    yield from (f"export {name}={shlex.quote(value)}" for name, value in job.env.items())
    yield f'export WEFT_JOB_KEY="${{WEFT_JOB_KEY:-$({_KEY})}}"'
    if job.serves:
        yield 'first_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)'
    yield job.command(
        " ".join(_start(job)),
        endpoint=f'"$first_node:{job.port}"',
        run_id='"$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}"',
        max_nodes='"$SLURM_JOB_NUM_NODES"',
    )


def _options(job: Job) -> Iterator[str]:
    yield f"--job-name={job.name}"
    yield f"--nodes={job.min_nodes}" + (f"-{job.max_nodes}" if job.max_nodes > job.min_nodes else "")
    yield "--ntasks-per-node=1"
    yield from _of_the_step(job)


def _of_the_step(job: Job) -> Iterator[str]:
    """The options that `srun` does not inherit from `sbatch`."""
    if job.cpus:
        yield f"--cpus-per-task={job.cpus}"
    if job.max_nodes > job.min_nodes:
        yield "--no-kill"  # the job continues when a node is lost


def _start(job: Job) -> Iterator[str]:
    yield "srun --kill-on-bad-exit=0"  # the rendezvous of the other nodes handles a node that ends
    yield from _of_the_step(job)
    if job.image:
        yield f"--container-image={shlex.quote(job.image)}"
    yield f"{'python' if job.image else shlex.quote(sys.executable)} -m weft.distributed.run"
