"""What XLA's devices have done, usually imported as `met`."""

from __future__ import annotations

from weft.xla._metrics import clear_all as clear_all
from weft.xla._metrics import clear_counters as clear_counters
from weft.xla._metrics import clear_metrics as clear_metrics
from weft.xla._metrics import counter_names as counter_names
from weft.xla._metrics import counter_value as counter_value
from weft.xla._metrics import executed_fallback_ops as executed_fallback_ops
from weft.xla._metrics import metric_data as metric_data
from weft.xla._metrics import metric_names as metric_names
from weft.xla._metrics import metrics_report as metrics_report
from weft.xla._metrics import short_metrics_report as short_metrics_report
