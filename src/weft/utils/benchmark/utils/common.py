"""Measurements, under PyTorch's import path."""

from weft.utils.benchmark._measurement import Measurement as Measurement
from weft.utils.benchmark._measurement import TaskSpec as TaskSpec
from weft.utils.benchmark._measurement import select_unit as select_unit
from weft.utils.benchmark._measurement import trim_sigfig as trim_sigfig
from weft.utils.benchmark._measurement import unit_to_english as unit_to_english
