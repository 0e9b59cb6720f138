"""Timers that a worker sets around code that may hang; a server ends workers whose timers expire."""

from weft.distributed.elastic.timer.api import RequestQueue as RequestQueue
from weft.distributed.elastic.timer.api import TimerClient as TimerClient
from weft.distributed.elastic.timer.api import TimerRequest as TimerRequest
from weft.distributed.elastic.timer.api import TimerServer as TimerServer
from weft.distributed.elastic.timer.api import configure as configure
from weft.distributed.elastic.timer.api import expires as expires
from weft.distributed.elastic.timer.file_based_local_timer import FileTimerClient as FileTimerClient
from weft.distributed.elastic.timer.file_based_local_timer import FileTimerRequest as FileTimerRequest
from weft.distributed.elastic.timer.file_based_local_timer import FileTimerServer as FileTimerServer
from weft.distributed.elastic.timer.local_timer import LocalTimerClient as LocalTimerClient
from weft.distributed.elastic.timer.local_timer import LocalTimerServer as LocalTimerServer
