"""Agents that start, monitor and restart workers."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.distributed.elastic.agent.server._worker_group import ElasticAgent as ElasticAgent
from weft.distributed.elastic.agent.server._worker_group import RunResult as RunResult
from weft.distributed.elastic.agent.server._worker_group import Worker as Worker
from weft.distributed.elastic.agent.server._worker_group import WorkerGroup as WorkerGroup
from weft.distributed.elastic.agent.server._worker_group import WorkerSpec as WorkerSpec
from weft.distributed.elastic.agent.server._worker_group import WorkerState as WorkerState
from weft.distributed.elastic.agent.server.local_elastic_agent import (
    TORCHELASTIC_ENABLE_FILE_TIMER as TORCHELASTIC_ENABLE_FILE_TIMER,
)
from weft.distributed.elastic.agent.server.local_elastic_agent import TORCHELASTIC_TIMER_FILE as TORCHELASTIC_TIMER_FILE
from weft.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent as LocalElasticAgent
from weft.distributed.elastic.agent.server.simple_elastic_agent import SimpleElasticAgent as SimpleElasticAgent

_serve_below(__name__)
