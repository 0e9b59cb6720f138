"""What `weft.explain()` says about each compilation."""

from __future__ import annotations

import pytest

import weft

X = weft.tensor([[1.0, 2.0], [3.0, 4.0]])
OTHER = weft.tensor([1.0, 2.0, 3.0])
CAUSES = [
    ("operator", [X.exp, X.sin], "sin where {site} had exp"),
    ("input", [X.exp, OTHER.exp], "exp: input 0 is float32[3], was float32[2, 2]"),
    ("argument", [lambda: X.cumsum(0), lambda: X.cumsum(1)], "cumsum: dim is 1, was 0"),
    ("length", [X.exp, lambda: X.exp().exp()], "2 operators where {site} had 1"),
]


@pytest.mark.parametrize(("graphs", "cause"), [row[1:] for row in CAUSES], ids=[row[0] for row in CAUSES])
def test_the_cause_is_the_difference_to_the_nearest_graph(compilations, graphs, cause):
    X.tolist(), OTHER.tolist()
    compilations()
    sites = []
    for graph in graphs:
        graph().tolist()
        sites.append(weft.explain()[-1].site)
    first, second = weft.explain()
    assert first.cause == "the first graph"
    assert second.cause == cause.format(site=sites[0])


def test_other_kept_results_are_a_cause(compilations):
    def graph():
        y = X.exp()
        return y, y.sin()

    graph()[1].tolist()
    both = graph()
    both[1].tolist()
    first, second = compilations()
    assert second.cause == f"other results are kept, or other buffers given away, than at {first.site}"


def test_each_compilation_names_the_line_that_needed_the_values(compilations):
    line = test_each_compilation_names_the_line_that_needed_the_values.__code__.co_firstlineno
    X.exp().tolist()
    (entry,) = compilations()
    assert entry.site.endswith(f"test_explain.py:{line + 2}")
    assert entry.seconds > 0


def test_it_prints_one_line_each(compilations):
    for _ in range(2):
        X.exp().tolist()
    found = compilations()
    head, line, inferred, *_ = str(found).split("\n")
    assert head.startswith("1 compilation, ")
    assert " inferred, " in inferred
    assert line.endswith(" s  1 operator  the first graph")
    assert repr(found) == str(found)


def test_lines_with_new_shapes_are_told():
    line = test_lines_with_new_shapes_are_told.__code__.co_firstlineno + 4
    before = {entry.site: entry for entry in weft.explain().inferred}
    for n in (90_001, 90_007, 90_011, 90_017, 90_019):  # sizes of no other test, which share what is known in a process
        weft.ones(n).erfinv().square()
    (entry,) = [e for e in weft.explain().inferred if e.site.endswith(f"test_explain.py:{line}")]
    assert entry.site not in before
    assert entry.signatures == 15
    assert entry.seconds > 0
    assert str(entry).startswith(f"{entry.site}  15 signatures  ")
