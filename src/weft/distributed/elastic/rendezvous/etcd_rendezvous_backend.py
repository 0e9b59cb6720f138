"""The rendezvous in etcd, under PyTorch's import path."""

from weft._tools.etcd.backend import EtcdRendezvousBackend as EtcdRendezvousBackend
from weft._tools.etcd.backend import create_backend as create_backend
