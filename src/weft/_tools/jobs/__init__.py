"""`weft run`, which starts the processes of a job on this node, and the manifests by which clusters start it on all."""
