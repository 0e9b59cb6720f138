"""A server of etcd for tests, under PyTorch's import path."""

from weft._tools.etcd.server import EtcdServer as EtcdServer
from weft._tools.etcd.server import find_free_port as find_free_port
from weft._tools.etcd.server import stop_etcd as stop_etcd
