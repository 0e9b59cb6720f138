"""A server of etcd for tests, under PyTorch's import path."""

from weft._tools.etcd.server import EtcdServer as EtcdServer
from weft._tools.etcd.server import stop_etcd as stop_etcd
from weft.distributed.elastic.utils.api import get_socket_with_port

find_free_port = get_socket_with_port
