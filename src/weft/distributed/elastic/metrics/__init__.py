"""Metrics of the library and of jobs: time series identified by group and name."""

from weft.distributed.elastic.metrics._handlers import ConsoleMetricHandler as ConsoleMetricHandler
from weft.distributed.elastic.metrics._handlers import ConsoleMetricsHandler as ConsoleMetricsHandler
from weft.distributed.elastic.metrics._handlers import MetricData as MetricData
from weft.distributed.elastic.metrics._handlers import MetricHandler as MetricHandler
from weft.distributed.elastic.metrics._handlers import NullMetricHandler as NullMetricHandler
from weft.distributed.elastic.metrics._handlers import NullMetricsHandler as NullMetricsHandler
from weft.distributed.elastic.metrics._prometheus import PrometheusMetricHandler as PrometheusMetricHandler
from weft.distributed.elastic.metrics._tensorboard import TensorBoardMetricHandler as TensorBoardMetricHandler
from weft.distributed.elastic.metrics.api import MetricsConfig as MetricsConfig
from weft.distributed.elastic.metrics.api import MetricStream as MetricStream
from weft.distributed.elastic.metrics.api import configure as configure
from weft.distributed.elastic.metrics.api import get_elapsed_time_ms as get_elapsed_time_ms
from weft.distributed.elastic.metrics.api import getStream as getStream
from weft.distributed.elastic.metrics.api import initialize_metrics as initialize_metrics
from weft.distributed.elastic.metrics.api import prof as prof
from weft.distributed.elastic.metrics.api import profile as profile
from weft.distributed.elastic.metrics.api import publish_metric as publish_metric
from weft.distributed.elastic.metrics.api import put_metric as put_metric
