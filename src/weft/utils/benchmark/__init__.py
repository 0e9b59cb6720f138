"""Times of statements, with PyTorch's names: `Timer` measures, `Compare` prints tables."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.utils.benchmark._compare import Colorize as Colorize
from weft.utils.benchmark._compare import Compare as Compare
from weft.utils.benchmark._fuzzer import FuzzedParameter as FuzzedParameter
from weft.utils.benchmark._fuzzer import FuzzedTensor as FuzzedTensor
from weft.utils.benchmark._fuzzer import Fuzzer as Fuzzer
from weft.utils.benchmark._fuzzer import ParameterAlias as ParameterAlias
from weft.utils.benchmark._measurement import Measurement as Measurement
from weft.utils.benchmark._measurement import TaskSpec as TaskSpec
from weft.utils.benchmark._measurement import select_unit as select_unit
from weft.utils.benchmark._measurement import trim_sigfig as trim_sigfig
from weft.utils.benchmark._measurement import unit_to_english as unit_to_english
from weft.utils.benchmark._timer import Language as Language
from weft.utils.benchmark._timer import Timer as Timer
from weft.utils.benchmark._timer import timer as timer

_serve_below(__name__)
