"""Names of PyTorch's own compiler, in whose stead XLA compiles: its options can be listed and set."""

from weft._absent.refused import aot_compile as aot_compile
from weft._absent.refused import aoti_compile_and_package as aoti_compile_and_package
from weft._absent.refused import aoti_load_package as aoti_load_package
from weft._absent.refused import standalone_compile as standalone_compile
from weft._import_paths.finder import serve_below as _serve_below
from weft._inductor._options import list_mode_options as list_mode_options
from weft._inductor._options import list_options as list_options
from weft.compiler import cudagraph_mark_step_begin as cudagraph_mark_step_begin

_serve_below(__name__)
