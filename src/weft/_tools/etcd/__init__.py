"""etcd as the place where the nodes of a job meet."""
