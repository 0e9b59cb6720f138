"""Helpers for workers and launchers."""

from weft.distributed.elastic.utils.api import get_env_variable_or_raise as get_env_variable_or_raise
from weft.distributed.elastic.utils.api import get_socket_with_port as get_socket_with_port
from weft.distributed.elastic.utils.api import macros as macros
