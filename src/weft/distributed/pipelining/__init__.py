"""Pipeline parallelism: a model in stages on several ranks, through which batches go in microbatches."""

from weft.distributed.pipelining._pipe import Pipe as Pipe
from weft.distributed.pipelining._pipe import build_stage as build_stage
from weft.distributed.pipelining._pipe import pipeline as pipeline
from weft.distributed.pipelining._tracing import SplitPoint as SplitPoint
from weft.distributed.pipelining._tracing import pipe_split as pipe_split
from weft.distributed.pipelining.microbatch import TensorChunkSpec as TensorChunkSpec
from weft.distributed.pipelining.schedules import Schedule1F1B as Schedule1F1B
from weft.distributed.pipelining.schedules import ScheduleGPipe as ScheduleGPipe
from weft.distributed.pipelining.schedules import ScheduleInterleaved1F1B as ScheduleInterleaved1F1B
from weft.distributed.pipelining.schedules import ScheduleInterleavedZeroBubble as ScheduleInterleavedZeroBubble
from weft.distributed.pipelining.schedules import ScheduleLoopedBFS as ScheduleLoopedBFS
from weft.distributed.pipelining.schedules import ScheduleZBVZeroBubble as ScheduleZBVZeroBubble
from weft.distributed.pipelining.stage import PipelineStage as PipelineStage
