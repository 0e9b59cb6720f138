"""`weft run`, also `python -m weft.distributed.run`: starts a program once for each worker and keeps it running.

It does not import the tensor library, so that it starts in a tenth of a second.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import logging
import os
import secrets
import shutil
import signal
import sys
import uuid
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from glob import glob
from importlib import import_module
from typing import NoReturn

from weft._base.program import run_script
from weft._base.types import AnyCallable, Kwargs
from weft._comm.transport.key import job_key
from weft._tools.jobs.flags import explicit_flags, flags_to_hand_on, get_args_parser, misplaced
from weft._tools.jobs.kubernetes import kubernetes
from weft._tools.jobs.manifest import job_of
from weft._tools.jobs.slurm import slurm
from weft.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsSpecs, SignalException, Std
from weft.distributed.elastic.multiprocessing._entry import RUNNER
from weft.distributed.elastic.multiprocessing._signals import raise_on_signals, restore_handlers
from weft.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from weft.distributed.elastic.rendezvous.utils import is_ipv6, parse_rendezvous_config
from weft.distributed.launcher.api import SIGNALS, LaunchConfig, elastic_launch
from weft.errors import ArgumentError, DistError, PreconditionError, ValueRangeError, WeftError

_log = logging.getLogger(__name__)

_MASTER_PORT = 29500  # torchrun's
_KEY_VARIABLES = ("WEFT_JOB_KEY", "WEFT_JOB_KEY_FILE")


def parse_args(args: Sequence[str] | None = None) -> Namespace:
    """Parse the command line, with defaults from the environment; exits with code 2 on errors."""
    return get_args_parser().parse_args(args)


def parse_min_max_nnodes(nnodes: str) -> tuple[int, int]:
    """The smallest and largest number of nodes, from `N` or `MIN:MAX`."""
    parts = nnodes.split(":")
    if len(parts) > 2:
        raise DistError(f'nnodes={nnodes} is not in "MIN:MAX" format')
    if not all(part.isdecimal() for part in parts):
        raise ValueRangeError(f'nnodes={nnodes} is not in "MIN:MAX" format: both are numbers')
    least, most = int(parts[0]), int(parts[-1])
    if not 0 < least <= most:
        raise PreconditionError(f"--nnodes must be at least 1, and MIN at most MAX, got {nnodes}")
    return least, most


def determine_local_world_size(nproc_per_node: str) -> int:
    """The number of workers of this node: a number, `cpu`, `gpu`, or `auto` (GPUs, or CPUs if there are none)."""
    if nproc_per_node.isdecimal() and int(nproc_per_node) > 0:
        return int(nproc_per_node)
    gpus = _gpu_count()
    match nproc_per_node:
        case "cpu":
            return _cpu_count()
        case "gpu" if gpus:
            return gpus
        case "gpu":
            raise ValueRangeError("Cuda is not available: this machine shows no GPU; pass --nproc-per-node NUMBER")
        case "auto":
            return gpus or _cpu_count()
        case _:
            raise ValueRangeError(
                f"Unsupported nproc_per_node value: {nproc_per_node}; it must be a positive number, auto, cpu or gpu"
            )


def _cpu_count() -> int:
    return len(os.sched_getaffinity(0))


def _gpu_count() -> int:
    """The number of GPUs that workers would see, found without starting a driver here."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name.strip() not in ("", "-1")])
    return len(glob("/dev/nvidia[0-9]*"))


def config_from_args(args: Namespace) -> tuple[LaunchConfig, AnyCallable | str, list[str]]:
    """What to launch: the configuration, the entrypoint and its arguments."""
    min_nodes, max_nodes = parse_min_max_nnodes(args.nnodes)
    _check(args)
    nproc = determine_local_world_size(args.nproc_per_node)
    if nproc > 1 and "OMP_NUM_THREADS" not in os.environ:
        os.environ["OMP_NUM_THREADS"] = "1"
    rdzv_configs: Kwargs = parse_rendezvous_config(args.rdzv_conf)
    endpoint = args.rdzv_endpoint
    if args.rdzv_backend == "static":
        rdzv_configs["rank"] = args.node_rank
        host = f"[{args.master_addr}]" if is_ipv6(args.master_addr) else args.master_addr
        endpoint = endpoint or f"{host}:{_MASTER_PORT if args.master_port is None else args.master_port}"
    config = LaunchConfig(
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        nproc_per_node=nproc,
        logs_specs=_logs(args, nproc),
        run_id=args.rdzv_id,
        role=args.role,
        rdzv_endpoint=endpoint,
        rdzv_backend=args.rdzv_backend,
        rdzv_configs=rdzv_configs,
        max_restarts=args.max_restarts,
        monitor_interval=args.monitor_interval,
        start_method=args.start_method,
        log_line_prefix_template=os.environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
        local_addr=args.local_addr,
        event_log_handler=args.event_log_handler,
        signals_to_handle=args.signals_to_handle,
        duplicate_stdout_filters=args.duplicate_stdout_filters,
        duplicate_stderr_filters=args.duplicate_stderr_filters,
        virtual_local_rank=args.virtual_local_rank,
        shutdown_timeout=args.shutdown_timeout,
    )
    entrypoint, arguments = _program(args)
    return config, entrypoint, arguments


def _check(args: Namespace) -> None:
    """Refuse errors that would otherwise be noticed late, or never."""
    if args.max_restarts < 0:
        raise PreconditionError(f"--max-restarts must be at least 0, got {args.max_restarts}")
    if not args.monitor_interval > 0:
        raise ValueRangeError(f"--monitor-interval must be more than 0 seconds, got {args.monitor_interval:g}")
    for name in args.signals_to_handle.split(","):
        if name.strip() not in signal.Signals.__members__:
            raise ValueRangeError(f"--signals-to-handle: {name!r} is no signal; name them as in {SIGNALS}")
    if args.container_image is not None:
        raise ValueRangeError("--container-image is for --print-manifest; start `weft run` inside of the container")
    if (args.duplicate_stdout_filters or args.duplicate_stderr_filters) and args.tee == "0":
        _log.warning("the filters pick lines of teed output, and there is none; pass --tee 3 as well")
    for flag in misplaced(args):
        _log.warning("%s stands behind the program, which gets it; flags of `weft run` go before it", flag)


def _logs(args: Namespace, nproc: int) -> LogsSpecs:
    try:
        ranks = {int(rank) for rank in args.local_ranks_filter.split(",")} if args.local_ranks_filter else None
    except ValueError:
        raise ValueRangeError(
            "--local_ranks_filter must be a comma-separated list of integers e.g. --local_ranks_filter=0,1,2, got "
            f"{args.local_ranks_filter!r}"
        ) from None
    redirects, tee = Std.from_str(args.redirects), Std.from_str(args.tee)
    for flag, named in (("--redirects", redirects), ("--tee", tee), ("--local-ranks-filter", ranks or ())):
        _refuse_absent(flag, () if isinstance(named, Std) else named, nproc)
    made_by = DefaultLogsSpecs
    if args.logs_specs is not None:
        entry_points = import_module("importlib.metadata").entry_points(
            group="torchrun.logs_specs", name=args.logs_specs
        )
        if not entry_points:
            raise ValueRangeError(f"Could not find entrypoint under 'torchrun.logs_specs[{args.logs_specs}]' key")
        made_by = next(iter(entry_points)).load()
    try:
        return made_by(log_dir=args.log_dir, redirects=redirects, tee=tee, local_ranks_filter=ranks)
    except OSError as error:
        if args.log_dir is None:
            raise
        raise ValueRangeError(f"--log-dir {args.log_dir}: {error}; name a folder that can be written") from error


def _refuse_absent(flag: str, ranks: Iterable[int], nproc: int) -> None:
    """Refuse local ranks that this node does not have."""
    if absent := sorted(set(ranks) - set(range(nproc))):
        there_are = "local rank 0 alone" if nproc == 1 else f"local ranks 0 to {nproc - 1}"
        raise ValueRangeError(f"{flag}: there is no local rank {absent[0]}; --nproc-per-node {nproc} makes {there_are}")


def _program(args: Namespace) -> tuple[AnyCallable | str, list[str]]:
    """The entrypoint and its arguments; raises if there is no such program."""
    script, rest = args.training_script, list(args.training_script_args)
    if args.run_path:
        _must_exist(script)
        return _run_path, [script, *rest]
    if args.no_python:
        if args.module:
            raise ValueRangeError("Don't use both the '--no-python' flag and the '--module' flag at the same time.")
        if shutil.which(script) is None:
            raise ValueRangeError(f"{script}: no such program, or it may not be executed; pass its path, or set PATH")
        return script, rest
    if args.module:
        _must_be_found(script)
    else:
        _must_exist(script)
    how = ["-m", script] if args.module else [script]
    other = os.environ.get("PYTHON_EXEC")
    if other:  # an interpreter chosen by the user may not have this package
        return other, ["-u", *how, *rest]
    return sys.executable, [*RUNNER, *how, *rest]


def _must_exist(script: str) -> None:
    if not os.path.exists(script):
        hint = ""
        if shutil.which(script):
            hint = "; pass --no-python to run a program"
        elif "/" not in script and not script.endswith(".py"):
            hint = "; pass -m to run a module"
        raise ValueRangeError(f"{script}: no such script in {os.getcwd()}{hint}")
    if os.path.isdir(script) and not os.path.isfile(os.path.join(script, "__main__.py")):
        raise ValueRangeError(f"{script}: is a folder without a __main__.py; pass a script")


def _must_be_found(module: str) -> None:
    """Raise unless the top package of a module is found; a search for the module itself would import the package."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        raise ValueRangeError(f"{module}: no such module; run in the folder that holds it, or set PYTHONPATH")


def _run_path(script: str, *args: str) -> None:
    run_script(os.path.abspath(script), list(args))


def run(args: Namespace) -> None:
    """Launch as the command line says; returns when all workers have succeeded."""
    alone = _is_alone(args)
    if args.print_manifest:
        print(_manifest(args), end="")
        return
    if alone:
        args.rdzv_backend, args.rdzv_endpoint = "c10d", "127.0.0.1:0"
        args.rdzv_id = str(uuid.uuid4()) if args.standalone or args.rdzv_id == "none" else args.rdzv_id
    config, entrypoint, arguments = config_from_args(args)
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = config.signals_to_handle
    _hand_on_key(args.rdzv_id, alone=alone)
    before = raise_on_signals()
    try:
        elastic_launch(config, entrypoint)(*arguments)
    finally:
        restore_handlers(before)


def _is_alone(args: Namespace) -> bool:
    """Whether the job runs only on this machine, with its own rendezvous."""
    least, most = parse_min_max_nnodes(args.nnodes)
    if not args.standalone:
        static = args.rdzv_backend == "static" and not args.rdzv_endpoint and args.master_port is None
        return static and most == 1 and args.node_rank == 0
    if least > 1:
        raise ArgumentError(
            f"--standalone is for a job of one machine, but --nnodes is {args.nnodes}; leave out one of them"
        )
    unused = explicit_flags(args, "rdzv_endpoint", "rdzv_id", "node_rank", "master_addr", "master_port")
    if args.rdzv_backend != "c10d":
        unused += explicit_flags(args, "rdzv_backend")
    if unused:
        _log.warning("--standalone makes a rendezvous of its own and leaves unused: %s", ", ".join(unused))
    return True


def _manifest(args: Namespace) -> str:
    """The description with which a scheduler runs this command on all nodes. The program need not exist here."""
    if args.nproc_per_node not in ("auto", "cpu", "gpu"):
        determine_local_world_size(args.nproc_per_node)
    job = job_of(args, parse_min_max_nnodes(args.nnodes), flags_to_hand_on(args))
    return slurm(job) if args.print_manifest == "slurm" else kubernetes(job)


def _hand_on_key(run_id: str, *, alone: bool) -> None:
    """Put the job's key into the environment: a new one or, for several nodes, one derived from the user's key.

    A job of one machine needs no key on disk, so it starts where the home folder cannot be written, too.
    """
    if any(os.environ.get(name) for name in _KEY_VARIABLES):
        job_key()  # raises at once if its file cannot be read
    elif alone:
        os.environ["WEFT_JOB_KEY"] = secrets.token_hex(32)
    else:
        os.environ["WEFT_JOB_KEY"] = hmac.new(job_key(), f"job {run_id}".encode(), hashlib.sha256).hexdigest()


def main(args: Sequence[str] | None = None) -> None:
    """Launch as these arguments say; returns when all workers have succeeded.

    Raises what `run` raises: `ChildFailedError` if workers have failed, `SignalException` if this process is asked to
    end, `ValueError` and the like for arguments. Without `args` it is the command, which reads the command line.
    """
    if args is None:
        command(sys.argv[1:])
    else:
        recorded(run)(parse_args(args))


def command(args: Sequence[str]) -> None:
    """The command; exits with the exit code of the first worker that has failed, or 128 + N for signal N."""
    to_the_end(run, parse_args(args))


def recorded(launch: Callable[[Namespace], None]) -> Callable[[Namespace], None]:
    """`launch`, which writes an error file if this process is a worker itself."""
    return record(launch) if os.environ.get("TORCHELASTIC_ERROR_FILE") else launch


def to_the_end(launch: Callable[[Namespace], None], options: Namespace) -> None:
    """Call `launch` as the main part of a command: an exception ends the process with a line that gives the reason."""
    level = os.environ.get("LOGLEVEL", "WARNING").upper()
    if level not in logging.getLevelNamesMapping():
        _end(f"weft run: error: LOGLEVEL={level} is no level; there are DEBUG, INFO, WARNING, ERROR and CRITICAL", 1)
    logging.basicConfig(format="weft run: %(message)s", level=level)
    try:
        recorded(launch)(options)
    except ChildFailedError as error:
        _end(str(error), _exit_code(error))
    except SignalException as stop:
        _end(f"weft run: ended by {stop.sigval.name}", 128 + stop.sigval)
    except (WeftError, OSError, ValueError) as error:
        _end(f"weft run: error: {error}", 1)


def _exit_code(error: ChildFailedError) -> int:
    _, failure = error.get_first_failure()
    return failure.exitcode if failure.exitcode >= 0 else 128 - failure.exitcode


def _end(message: str, code: int) -> NoReturn:
    print(message, file=sys.stderr, flush=True)
    sys.exit(code)
