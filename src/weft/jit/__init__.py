"""TorchScript's functions for programs that use them: tracing makes programs of XLA, and scripting changes nothing."""

from typing import Final as Final

from weft._import_paths.finder import serve_below as _serve_below
from weft.compiler import is_tracing as is_tracing
from weft.futures import Future as Future
from weft.jit import annotations as annotations
from weft.jit._annotations import Attribute as Attribute
from weft.jit._annotations import Error as Error
from weft.jit._annotations import _overload as _overload
from weft.jit._annotations import _overload_method as _overload_method
from weft.jit._annotations import _script_if_tracing as _script_if_tracing
from weft.jit._annotations import annotate as annotate
from weft.jit._annotations import export as export
from weft.jit._annotations import ignore as ignore
from weft.jit._annotations import interface as interface
from weft.jit._annotations import is_scripting as is_scripting
from weft.jit._annotations import isinstance as isinstance
from weft.jit._annotations import script as script
from weft.jit._annotations import script_if_tracing as script_if_tracing
from weft.jit._annotations import script_method as script_method
from weft.jit._annotations import unused as unused
from weft.jit._fork import fork as fork
from weft.jit._fork import wait as wait
from weft.jit._freeze import enable_onednn_fusion as enable_onednn_fusion
from weft.jit._freeze import freeze as freeze
from weft.jit._freeze import onednn_fusion_enabled as onednn_fusion_enabled
from weft.jit._freeze import optimize_for_inference as optimize_for_inference
from weft.jit._freeze import optimized_execution as optimized_execution
from weft.jit._freeze import run_frozen_optimizations as run_frozen_optimizations
from weft.jit._freeze import set_fusion_strategy as set_fusion_strategy
from weft.jit._freeze import strict_fusion as strict_fusion
from weft.jit._script import ScriptFunction as ScriptFunction
from weft.jit._script import ScriptModule as ScriptModule
from weft.jit._trace import TopLevelTracedModule as TopLevelTracedModule
from weft.jit._trace import TracerWarning as TracerWarning
from weft.jit._trace import load as load
from weft.jit._trace import save as save
from weft.jit._trace import trace as trace
from weft.jit._trace import trace_module as trace_module

_serve_below(__name__)
