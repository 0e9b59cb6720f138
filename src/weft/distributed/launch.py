"""`python -m weft.distributed.launch`: the former `weft run`, with a flag that passes scripts their local rank."""

from __future__ import annotations

import warnings
from argparse import Namespace
from collections.abc import Sequence

from weft._tools.jobs.flags import get_args_parser
from weft._tools.jobs.run import recorded, run, to_the_end
from weft.distributed.elastic.utils import macros
from weft.errors import ValueRangeError


def parse_args(args: Sequence[str] | None = None) -> Namespace:
    """The command line of `weft run`, with `--use-env`."""
    parser = get_args_parser()
    text = "tell scripts their local rank by LOCAL_RANK alone, not by --local-rank=RANK as well"
    parser.add_argument("--use-env", "--use_env", action="store_true", help=text)
    return parser.parse_args(args)


def launch(args: Namespace) -> None:
    """Launch as the command line says; returns when all workers have succeeded."""
    if args.no_python and not args.use_env:
        raise ValueRangeError("When using the '--no-python' flag, you must also set the '--use-env' flag.")
    if not args.use_env:
        args.training_script_args = [f"--local-rank={macros.local_rank}", *args.training_script_args]
    run(args)


def main(args: Sequence[str] | None = None) -> None:
    """Launch as these arguments say; without `args` it is the command. As `weft.distributed.run.main`; deprecated."""
    warnings.warn(
        "weft.distributed.launch is deprecated, use `weft run`, which does not pass --local-rank: read "
        "os.environ['LOCAL_RANK'] in the script",
        FutureWarning,
        stacklevel=2,
    )
    if args is None:
        to_the_end(launch, parse_args())
    else:
        recorded(launch)(parse_args(args))


if __name__ == "__main__":
    main()
