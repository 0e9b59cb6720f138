"""Tables of figures."""

from __future__ import annotations

import pytest

from weft._tools.tables import amount, table, text


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KB"),
        (99_940, "99.9 KB"),
        (262_144, "262 KB"),
        (2_600_000, "2.6 MB"),
        (3e9, "3.0 GB"),
        (4e12, "4.0 TB"),
        (5e15, "5000.0 TB"),
    ],
)
def test_amounts_of_bytes(count, shown):
    assert amount(count) == shown


def test_numbers_stand_to_the_right():
    shown = table(("name", " count"), [("a", "1"), ("[red]b :smile:", "1000"), ("x" * 500, "2")])
    head, *lines = text(shown).splitlines()
    assert head == f"{'name':500}  count"
    assert lines == [f"{'a':500}      1", f"{'[red]b :smile:':500}   1000", f"{'x' * 500}      2"]
