"""`python -m weft.distributed.run`: the command `weft run`, under PyTorch's import path."""

import sys

from weft._tools.jobs.flags import get_args_parser as get_args_parser
from weft._tools.jobs.run import command as command
from weft._tools.jobs.run import config_from_args as config_from_args
from weft._tools.jobs.run import determine_local_world_size as determine_local_world_size
from weft._tools.jobs.run import main as main
from weft._tools.jobs.run import parse_args as parse_args
from weft._tools.jobs.run import parse_min_max_nnodes as parse_min_max_nnodes
from weft._tools.jobs.run import run as run

if __name__ == "__main__":
    command(sys.argv[1:])
