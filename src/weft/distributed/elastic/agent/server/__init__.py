"""Agents that start, monitor and restart workers."""

from weft.distributed.elastic.agent.server.api import ElasticAgent as ElasticAgent
from weft.distributed.elastic.agent.server.api import RunResult as RunResult
from weft.distributed.elastic.agent.server.api import SimpleElasticAgent as SimpleElasticAgent
from weft.distributed.elastic.agent.server.api import Worker as Worker
from weft.distributed.elastic.agent.server.api import WorkerGroup as WorkerGroup
from weft.distributed.elastic.agent.server.api import WorkerSpec as WorkerSpec
from weft.distributed.elastic.agent.server.api import WorkerState as WorkerState
from weft.distributed.elastic.agent.server.local_elastic_agent import (
    TORCHELASTIC_ENABLE_FILE_TIMER as TORCHELASTIC_ENABLE_FILE_TIMER,
)
from weft.distributed.elastic.agent.server.local_elastic_agent import TORCHELASTIC_TIMER_FILE as TORCHELASTIC_TIMER_FILE
from weft.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent as LocalElasticAgent
