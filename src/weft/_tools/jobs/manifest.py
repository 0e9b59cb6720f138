"""Schedulers' descriptions of a job that runs `weft run` on all nodes: the command, without what the scheduler sets."""

from __future__ import annotations

import logging
import os
import re
import shlex
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from weft._base.environment import displayed_value
from weft._base.guards import is_list
from weft._base.types import Arg
from weft._tools.jobs.flags import explicit_flags
from weft.distributed.elastic.rendezvous.c10d_rendezvous_backend import DEFAULT_PORT
from weft.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from weft.errors import ValueRangeError

_HANDED_ON = ("JAX_", "NCCL_", "OMP_", "WEFT_", "XLA_")
_OWN_KEYS = ("WEFT_JOB_KEY", "WEFT_JOB_KEY_FILE")  # a manifest has a new key
_LONGEST_NAME = 40
_SHUTDOWN_SECONDS = 30
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """A command line, as a scheduler needs it.

    `flags` are those that every node gets, too. `endpoint` is that of etcd; if it is empty, a node of the job serves
    the rendezvous at `port`.
    """

    name: str
    min_nodes: int
    max_nodes: int
    workers: str
    max_restarts: int
    shutdown_timeout: int
    run_id: str
    endpoint: str
    port: int
    rdzv_conf: str
    log_dir: str | None
    image: str | None
    env: dict[str, str]
    flags: tuple[str, ...]
    program: tuple[str, ...]

    @property
    def cpus(self) -> int | None:
        """Processors of a node, one for each worker; None if the number of workers depends on the node."""
        return int(self.workers) if self.workers.isdecimal() else None

    def command(self, start: str, *, endpoint: str, run_id: str, conf: str = "", max_nodes: str = "") -> str:
        """The command for a shell. `start`, `endpoint`, `run_id`, `conf` and `max_nodes` are shell words.

        They are values that only the scheduler knows; a value on the command line takes precedence.
        """
        meeting = ["--standalone"]
        if self.max_nodes > 1:
            confs = [part for part in (conf, shlex.quote(self.rdzv_conf) if self.rdzv_conf else "") if part]
            meeting = [
                f"--nnodes={self.min_nodes}:{max_nodes or self.max_nodes}",
                f"--rdzv-backend={'etcd' if self.endpoint else 'c10d'}",
                f"--rdzv-endpoint={shlex.quote(self.endpoint) if self.endpoint else endpoint}",
                f"--rdzv-id={shlex.quote(self.run_id) if self.run_id else run_id}",
                *([f"--rdzv-conf={','.join(confs)}"] if confs else []),
            ]
        return " \\\n  ".join([start, *meeting, *map(shlex.quote, self.flags), shlex.join(self.program)])

    @property
    def serves(self) -> bool:
        """Whether a node of the job serves the rendezvous."""
        return self.max_nodes > 1 and not self.endpoint


def job_of(args: Namespace, nodes: tuple[int, int], flags: Mapping[str, Arg]) -> Job:
    """The job of a command line: its options, its smallest and largest number of nodes, and the `flags` of nodes."""
    static = args.rdzv_backend == "static"
    if not static and args.rdzv_backend not in ("c10d", "etcd"):
        raise ValueRangeError(f"--print-manifest knows the rendezvous c10d and etcd, got {args.rdzv_backend!r}")
    if args.rdzv_backend == "etcd" and not args.rdzv_endpoint:
        raise ValueRangeError("--rdzv-backend etcd needs the members' addresses: pass --rdzv-endpoint HOST:PORT[,...]")
    _refuse_places(args)
    port = DEFAULT_PORT
    if args.rdzv_backend == "c10d":
        _, port = parse_rendezvous_endpoint(args.rdzv_endpoint, DEFAULT_PORT)
    return Job(
        name=_name(args),
        min_nodes=1 if args.standalone else nodes[0],
        max_nodes=1 if args.standalone else nodes[1],
        workers=args.nproc_per_node,
        max_restarts=args.max_restarts,
        shutdown_timeout=_SHUTDOWN_SECONDS if args.shutdown_timeout is None else args.shutdown_timeout,
        run_id="" if args.rdzv_id == "none" else args.rdzv_id,
        endpoint=args.rdzv_endpoint if args.rdzv_backend == "etcd" else "",
        port=port,
        rdzv_conf=args.rdzv_conf,
        log_dir=args.log_dir,
        image=args.container_image,
        env=_handed_on(),
        flags=tuple(_spelt(flags)),
        program=(args.training_script, *args.training_script_args),
    )


def _handed_on() -> dict[str, str]:
    """The environment variables that nodes get: settings, and no secrets, since many people may read a manifest."""
    variables = {name: value for name, value in sorted(os.environ.items()) if name.startswith(_HANDED_ON)}
    harmless = {name: value for name, value in variables.items() if displayed_value(name, value) == value}
    if left_out := [name for name in variables if name not in harmless and name not in _OWN_KEYS]:
        _log.warning("--print-manifest leaves out what may be secret; set it on the nodes: %s", ", ".join(left_out))
    return harmless


def _refuse_places(args: Namespace) -> None:
    """Refuse flags that differ from node to node, since all nodes run one command."""
    places = explicit_flags(args, "node_rank", "master_addr", "master_port", "local_addr")
    if args.rdzv_backend == "static":
        places += explicit_flags(args, "rdzv_endpoint")
    if places:
        raise ValueRangeError(
            f"--print-manifest: leave out {', '.join(places)}; the scheduler places the nodes, and their rendezvous is "
            "c10d on the first one, or etcd (--rdzv-backend etcd --rdzv-endpoint HOST:PORT[,...])"
        )


def _spelt(flags: Mapping[str, Arg]) -> Sequence[str]:
    return [
        name if value is True else f"{name}={','.join(value) if is_list(value) else value}"
        for name, value in flags.items()
    ]


def _name(args: Namespace) -> str:
    """A name that is valid in host names: that of the job, else that of the program."""
    base = PurePath(args.training_script).name.removesuffix(".py") if args.rdzv_id == "none" else args.rdzv_id
    return re.sub(r"[^a-z0-9]+", "-", base.lower())[:_LONGEST_NAME].strip("-") or "weft"
