"""What a launch is told, refused where it is written."""

import pytest

from weft.distributed.launcher import LaunchConfig


@pytest.mark.parametrize(
    ("args", "options", "kind", "message"),
    [
        ((2, 1, 1), {}, ValueError, r"^The maximum number of rendezvous nodes \(1\) must be greater than or equal to"),
        ((0, 1, 1), {}, ValueError, r"^The minimum number of rendezvous nodes \(0\) must be greater than zero\.$"),
        ((1, 1, "2"), {}, TypeError, r"^LaunchConfig: nproc_per_node must be an int, got '2'$"),
        ((1, "1", 1), {}, TypeError, r"^LaunchConfig: max_nodes must be an int, got '1'$"),
        ((1, 1, 0), {}, ValueError, r"^LaunchConfig: nproc_per_node must be at least 1, got 0$"),
        ((1, 1, 1), {"shutdown_timeout": -1}, ValueError, r"^shutdown_timeout must be non-negative, got -1$"),
        ((1, 1, 1), {"event_log_handler": "x"}, KeyError, r"^no event destination is called 'x'; there are console, "),
    ],
)
def test_a_launch_that_cannot_be_is_refused(args, options, kind, message):
    with pytest.raises(kind, match=message):
        LaunchConfig(*args, **options)
