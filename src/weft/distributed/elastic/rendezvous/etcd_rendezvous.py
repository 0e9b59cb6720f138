"""PyTorch's older rendezvous in etcd, under its import path."""

from weft._tools.etcd.rendezvous import EtcdRendezvous as EtcdRendezvous
from weft._tools.etcd.rendezvous import EtcdRendezvousHandler as EtcdRendezvousHandler
from weft._tools.etcd.rendezvous import EtcdRendezvousRetryableFailure as EtcdRendezvousRetryableFailure
from weft._tools.etcd.rendezvous import EtcdRendezvousRetryImmediately as EtcdRendezvousRetryImmediately
from weft._tools.etcd.rendezvous import create_rdzv_handler as create_rdzv_handler
