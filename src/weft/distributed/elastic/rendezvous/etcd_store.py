"""The store in etcd, under PyTorch's import path."""

from weft._tools.etcd.store import EtcdStore as EtcdStore
