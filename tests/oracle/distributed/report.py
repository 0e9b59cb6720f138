"""The section of `docs/coverage.md` on PyTorch's distributed tests."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.oracle.distributed.internals import reason_of

PAGE = Path(__file__).parents[3] / "docs" / "coverage.md"
_TITLE = "## Distributed programs"
_HEAD = f"""{_TITLE}

Written by `make oracle-distributed` from PyTorch's own tests of its distributed packages, as far as its wheel carries
them, run against Weft in processes of their own. Skipped are those that need GPUs, NCCL or another number of ranks.
What is about PyTorch's inside, or another subject, stands apart with its reason.
"""


def section(outcomes: Sequence[tuple[str, str, str]]) -> str:
    """The text, from (test, "passed", "failed", "late" or "skipped", what it has said)."""
    suites: defaultdict[str, Counter[str]] = defaultdict(Counter)
    reasons: Counter[str] = Counter()
    failing: list[str] = []
    for test, result, _ in outcomes:
        reason = reason_of(test) if result in ("failed", "late") else ""
        if reason:
            reasons[reason] += 1
        elif result in ("failed", "late"):
            failing.append(test)
        suites[test.partition(".")[0]]["apart" if reason else "failed" if result == "late" else result] += 1
    total = sum(suites.values(), Counter())
    applying = total["passed"] + total["failed"]
    lines = [
        _HEAD,
        f"{total['passed']} of {applying} tests that apply pass ({total['passed'] / applying:.0%}).\n",
        "| suite | pass | fail | apart | skipped |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {' | '.join(str(c[key]) for key in ('passed', 'failed', 'apart', 'skipped'))} |"
            for name, c in suites.items()
        ),
        "\n| apart, since they are about | tests |",
        "|---|---|",
        *(f"| {reason} | {count} |" for reason, count in reasons.most_common()),
        f"\nFailing: {', '.join(f'`{test}`' for test in failing) or 'none'}.",
        "",
    ]
    return "\n".join(lines)


def written() -> str:
    """The section as it stands on the page, "" where there is none."""
    _, title, rest = PAGE.read_text().partition(_TITLE)
    return title + rest


def write(outcomes: Sequence[tuple[str, str, str]]) -> None:
    """Put the section at the end of the page."""
    before = PAGE.read_text().partition(_TITLE)[0].rstrip()
    PAGE.write_text(f"{before}\n\n{section(outcomes)}")
