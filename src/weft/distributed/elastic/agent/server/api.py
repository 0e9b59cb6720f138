"""Agents and workers, under PyTorch's import path."""

from weft.distributed.elastic.agent.server._worker_group import DEFAULT_ROLE as DEFAULT_ROLE
from weft.distributed.elastic.agent.server._worker_group import ElasticAgent as ElasticAgent
from weft.distributed.elastic.agent.server._worker_group import RunResult as RunResult
from weft.distributed.elastic.agent.server._worker_group import Worker as Worker
from weft.distributed.elastic.agent.server._worker_group import WorkerGroup as WorkerGroup
from weft.distributed.elastic.agent.server._worker_group import WorkerSpec as WorkerSpec
from weft.distributed.elastic.agent.server._worker_group import WorkerState as WorkerState
from weft.distributed.elastic.agent.server.simple_elastic_agent import SimpleElasticAgent as SimpleElasticAgent
