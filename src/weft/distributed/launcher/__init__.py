"""Launches a function or a command under an elastic agent."""

from weft.distributed.launcher.api import LaunchConfig as LaunchConfig
from weft.distributed.launcher.api import elastic_launch as elastic_launch
from weft.distributed.launcher.api import launch_agent as launch_agent
