"""The flags of `weft run`: two spellings of each, and defaults from `PET_*` variables."""

from __future__ import annotations

import os
from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, NamedTuple, NoReturn

from weft._base.types import Kwargs
from weft.distributed.launcher.api import SIGNALS

USAGE = "usage: weft run [flags] SCRIPT [arguments]; weft run --help lists the flags"


class _Flag(NamedTuple):
    names: tuple[str, ...]
    default: Any
    help: str
    type: Callable[[str], Any] = str
    choices: tuple[str, ...] | None = None

    @property
    def dest(self) -> str:
        return self.names[-1].removeprefix("--").replace("-", "_")

    @property
    def variable(self) -> str:
        return f"PET_{self.dest.upper()}"


def _words(text: str) -> list[str]:
    """Split at commas; a doubled comma stands for one."""
    return [word.replace("\0", ",") for word in text.replace(",,", "\0").split(",") if word]


_FLAGS = (
    _Flag(("--nnodes",), "1:1", "number of nodes, or MIN:MAX for an elastic job"),
    _Flag(("--nproc-per-node",), "1", "workers of each node: a number, auto, cpu or gpu"),
    _Flag(("--rdzv-backend",), "static", "how nodes find each other: static, c10d or etcd"),
    _Flag(("--rdzv-endpoint",), "", "HOST[:PORT] of the rendezvous; for etcd HOST:PORT[,HOST:PORT...]"),
    _Flag(("--rdzv-id",), "none", "name of the job"),
    _Flag(("--rdzv-conf",), "", "options of the rendezvous, KEY=VALUE[,KEY=VALUE...]"),
    _Flag(("--max-restarts",), 0, "how often failed workers are started again", int),
    _Flag(("--monitor-interval",), 0.1, "seconds between looks at the membership", float),
    _Flag(
        ("--start-method",), "spawn", "how processes are made for --run-path", choices=("spawn", "fork", "forkserver")
    ),
    _Flag(("--event-log-handler",), "null", "where events go", choices=("null", "console", "dynamic_rendezvous")),
    _Flag(("--role",), "default", "role of the workers"),
    _Flag(("--log-dir",), None, "folder for logs; each run makes its own below"),
    _Flag(("-r", "--redirects"), "0", "streams to write to files: 1 stdout, 2 stderr, 3 both, or RANK:N,..."),
    _Flag(("-t", "--tee"), "0", "streams to write to files and show, too"),
    _Flag(("--local-ranks-filter",), "", "local ranks whose output is shown, such as 0,1"),
    _Flag(("--duplicate-stdout-filters",), [], "words; lines of stdout with one of them go to one more file", _words),
    _Flag(("--duplicate-stderr-filters",), [], "words; lines of stderr with one of them go to one more file", _words),
    _Flag(("--node-rank",), 0, "rank of this node, for the static rendezvous", int),
    _Flag(("--master-addr",), "127.0.0.1", "address of node rank 0, for the static rendezvous"),
    _Flag(("--master-port",), None, "port on node rank 0, for the static rendezvous (29500)", int),
    _Flag(("--local-addr",), None, "address of this node, as others reach it"),
    _Flag(("--logs-specs",), None, "entry point of group torchrun.logs_specs that says where logs go"),
    _Flag(("--signals-to-handle",), SIGNALS, "signals that end the job and are handed on to workers"),
    _Flag(("--shutdown-timeout",), None, "seconds that workers have to end before they are killed (30)", int),
    _Flag(
        ("--print-manifest",),
        None,
        "write a batch script or manifests for this command",
        choices=("slurm", "kubernetes"),
    ),
    _Flag(("--container-image",), None, "image with the program, for --print-manifest"),
)
_SWITCHES = (
    _Flag(("--standalone",), False, "a job of this machine alone, with a rendezvous of its own on a free port"),
    _Flag(("-m", "--module"), False, "run the program as `python -m` does"),
    _Flag(("--no-python",), False, "run the program itself, not by the Python interpreter"),
    _Flag(("--run-path",), False, "run the script in processes made by --start-method"),
    _Flag(("--virtual-local-rank",), False, "LOCAL_RANK is 0 in each worker, which sees one GPU"),
)
_OF_THE_NODES = {
    "nnodes",
    "rdzv_backend",
    "rdzv_endpoint",
    "rdzv_id",
    "rdzv_conf",
    "standalone",
    "node_rank",
    "master_addr",
    "master_port",
    "local_addr",
    "print_manifest",
    "container_image",
}


def _alike(word: str, names: list[str]) -> list[str]:
    """The flag most similar to a misspelt one, if there is one. The dashes are ignored, since all flags have them."""
    bare = {name.lstrip("-"): name for name in names if name.startswith("--")}
    return [bare[match] for match in get_close_matches(word.lstrip("-"), bare, 1)]


class _Parser(ArgumentParser):
    """A parser whose errors suggest the flag that was meant, and name the variable that has a wrong value."""

    def error(self, message: str) -> NoReturn:
        explain = _explained_value if message.startswith("argument ") else _explained_flag
        self.exit(2, f"{USAGE}\n{self.prog}: error: {explain(message)}\n")


def _explained_value(message: str) -> str:
    for flag in _FLAGS:
        if "/".join(_spellings(flag)) in message and repr(os.environ.get(flag.variable)) in message:
            return f"{message}, given by {flag.variable}"
    return message


def _explained_flag(message: str) -> str:
    flag_names = [name for flag in (*_FLAGS, *_SWITCHES) for name in flag.names]
    words = [word.partition("=")[0] for word in message.split() if word.startswith("--")]
    if message.startswith("ambiguous option"):  # the text then lists both spellings of all candidates
        near = [name for name in flag_names if name.startswith(words[0].replace("_", "-"))]
        message = f"{words[0]} is no flag"
    else:
        near = [match for word in words if word not in flag_names for match in _alike(word, flag_names)]
    if near:
        return f"{message}; did you mean {', '.join(near)}?"
    return f"{message}; flags of the program go behind it" if words else message


def get_args_parser() -> ArgumentParser:
    """The parser; defaults are read from the environment when it is made."""
    usage, what = "%(prog)s [flags] SCRIPT [arguments]", "Start a program once or many times, on one or many nodes."
    parser = _Parser(prog="weft run", usage=usage, description=what)
    for flag in _FLAGS:
        default = os.environ.get(flag.variable, flag.default)  # a string is converted as on the command line
        default_text = "" if flag.default in (None, "", []) else f" (default {flag.default})"
        text = f"{flag.help}{default_text}; {flag.variable}"
        parser.add_argument(
            *_spellings(flag), dest=flag.dest, type=flag.type, choices=flag.choices, default=default, help=text
        )
    for flag in _SWITCHES:
        default = os.environ.get(flag.variable, "0").lower() not in ("", "0", "false", "no")
        text = f"{flag.help}; {flag.variable}=1"
        parser.add_argument(*_spellings(flag), dest=flag.dest, action="store_true", default=default, help=text)
    parser.add_argument("training_script", help="the program: a script, a module with -m, a command with --no-python")
    parser.add_argument("training_script_args", nargs=REMAINDER, help="its arguments")
    return parser


def flags_to_hand_on(args: Namespace) -> Kwargs:
    """The flags of a command that each node needs as well, by name; without those that locate the nodes."""
    return {
        flag.names[-1]: getattr(args, flag.dest)
        for flag in (*_FLAGS, *_SWITCHES)
        if flag.dest not in _OF_THE_NODES and getattr(args, flag.dest) != flag.default
    }


def misplaced(args: Namespace) -> list[str]:
    """Flags of the launcher that come after the program, where they belong to the program."""
    own = {"nnodes", "nproc_per_node", "rdzv_backend", "rdzv_endpoint", "standalone"}
    spellings = {name for flag in (*_FLAGS, *_SWITCHES) if flag.dest in own for name in _spellings(flag)}
    return [word for word in args.training_script_args if word.partition("=")[0] in spellings]


def explicit_flags(args: Namespace, *names: str) -> list[str]:
    """Those flags among `names` that differ from their defaults, with their values."""
    flags = [flag for flag in _FLAGS if flag.dest in names and getattr(args, flag.dest) != flag.default]
    return [f"{flag.names[-1]} {getattr(args, flag.dest)}" for flag in flags]


def _spellings(flag: _Flag) -> list[str]:
    names = list(flag.names)
    under = "--" + names[-1].removeprefix("--").replace("-", "_")
    return names if under in names else [*names, under]
