"""Modules on other workers."""

from weft.distributed.nn.api.remote_module import RemoteModule as RemoteModule
