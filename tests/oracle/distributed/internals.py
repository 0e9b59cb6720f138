"""Tests that are about PyTorch's inside, or about another subject than distributed programs, with the reason."""

from __future__ import annotations

REASONS: dict[str, tuple[str, ...]] = {
    "sparse tensors": ("sparse",),
    "calls from TorchScript in profiles": ("cbs_jit_call", "record_function_legacy", "_with_script_"),
    "operators that PyTorch composes of others, in profiles": (
        "test_profiler_remote_events_profiled",
        "test_profiler_export_trace",
    ),
    "calls in profiles of `torch.profiler`, where only Weft has them": ("test_profiler_with_async_rpc_udf",),
    "figures of Python's lock": ("gil_profiling",),
    "the profile of all threads of a server": ("server_process_global_profiler",),
    "TorchScript": ("script", "_jit"),
    "the send and receive functions of PyTorch's graph in C++": (
        "DistAutogradTest.test_graph_for",
        "test_no_graph_with_tensors",
        "_complex_args",
        "test_worker_ids_recorded",
    ),
    "private functions of contexts (`_retrieve_context`, `_new_context`, `_get_max_id`)": (
        "test_context_cleanup",
        "DistAutogradTest.test_autograd_context",
        "DistAutogradTest.test_debug_info",
        "test_clean_context",
    ),
    "private steps of joining and leaving, replaced by mocks": (
        "rref_leak",
        "test_wait_all_workers",
        "test_shutdown_errors",
        "test_register_rpc_backend",
        "test_duplicate_name",
    ),
    "the thread-local list behind `_wait_all`": (
        "RpcTest.test_wait_all_multiple_call",
        "RpcTest.test_wait_all_raise",
        "RpcTest.test_wait_all_timeout",
    ),
    "the pickler, `_C` and their private names": (
        "test_use_rpc_pickler",
        "test_use_rref_after_shutdown",
        "test_rref_get_future",
    ),
    "keys of PyTorch's own debug figures": (
        "test_rref_context_debug_info",
        "test_rref_timeout",
        "RpcTest.test_debug_info",
        "test_set_and_get_num_worker_threads",
    ),
    "the text of the operator schema parser in C++": ("test_op_with_invalid_args",),
    "nodes of the graph with hooks, and buffers that gradients share": ("test_post_hooks", "test_no_grad_copy"),
    "interfaces of TorchScript modules, and names of pickled attributes": (
        "RemoteModuleTest.test_forward_",
        "test_send_remote_module_over_the_wire",
    ),
    "times of passes, which here are recorded and computed later": ("test_ddp_logging_data_cpu",),
}
"""By what a test is about that Weft does not have, or does otherwise by design: parts of the tests' names."""

_EXACT = {"RpcTest.test_wait_all": "the thread-local list behind `_wait_all`"}


def reason_of(test: str) -> str:
    """Why a test does not apply; "" where it does."""
    reasons = (reason for reason, parts in REASONS.items() if any(part in test for part in parts))
    return _EXACT.get(test) or next(reasons, "")
