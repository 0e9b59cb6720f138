"""The page that shows what a `CommDebugMode` has recorded, in a browser without a window."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest

import weft as torch
from tests.distributed.tensor.test_debug import step
from tests.distributed.tensor.threads import on_mesh
from weft.distributed.tensor.debug import CommDebugMode
from weft.distributed.tensor.debug._reports import viewer
from weft.nn import Module

BROWSER = shutil.which("chromium")
OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=36000000",  # a file is read in real time, while a script that waits for it lets this pass
    "--dump-dom",
]
in_browser = pytest.mark.skipif(BROWSER is None, reason="chromium is not installed")


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """A folder with `log.html` and `log.json` of a step of training."""
    folder = tmp_path_factory.mktemp("reports")

    def program(mesh):
        mode = step(mesh)
        if not mesh.get_rank():
            mode.generate_html(folder / "log.html")
            mode.generate_json_dump(folder / "log.json")

    on_mesh((2,), program)
    return folder


def shown(page, folder, script=""):
    """The elements of a page after its scripts and, at last, another one."""
    path = folder / "shown.html"
    path.write_text(page.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    command = [str(BROWSER), *OPTIONS, f"--user-data-dir={folder / 'profile'}", path.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dom.partition('<script type="application/json"')[0]


def text_of(dom):
    """The text of elements, as one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", dom.partition("<body>")[2])).split())


@in_browser
def test_a_page_shows_its_report(reports, tmp_path):
    script = """
        at("filter").value = "nowhere"; show(); document.title = at("found").value;
        at("filter").value = ""; show();
    """
    dom = shown((reports / "log.html").read_text(encoding="utf-8"), tmp_path, script)
    assert "<title>nothing is found</title>" in dom
    text = text_of(dom)
    assert "3 collectives, 384 B" in text
    assert "all_reduce 1 128 B 2 256 B 3 384 B" in text
    assert "Sequential Sequential forward 1 · 128 B backward 2 · 256 B" in text
    assert "Sequential.1 Linear backward 1 · 128 B" in text
    assert "Sequential.0.up" not in text  # it is filled in when it is opened


@in_browser
def test_a_report_is_filtered_and_opened(reports, tmp_path):
    page = (reports / "log.html").read_text(encoding="utf-8")
    script = """
        at("filter").value = "0.UP"; at("filter").dispatchEvent(new Event("input"));
        for (const details of document.querySelectorAll(".body details")) details.open = true;
    """
    text = text_of(shown(page, tmp_path, script))
    assert "1 module found" in text
    assert "Sequential.0.down" not in text
    assert "weight Shard(0) bias Shard(0)" in text
    assert "all_reduce of float32[4, 8] 128 B test_debug.py:" in text
    assert "1 operator linear float32[4, 8] (R), float32[32, 8] (S(0)), float32[32] (S(0)) → float32[4, 32]" in text


CHOOSE = "at('file').files = given.files; at('file').dispatchEvent(new Event('change'));"
DROP = "document.dispatchEvent(new DragEvent('drop', {dataTransfer: given, cancelable: true}));"


@in_browser
@pytest.mark.parametrize("action", [CHOOSE, DROP], ids=["choose", "drop"])
def test_the_empty_page_opens_reports(action, reports, tmp_path):
    """After one that can be read, another one cannot, which is said beside the first."""
    report = json.dumps((reports / "log.json").read_text(encoding="utf-8"))
    script = f"""
        function give(text, name) {{
            const given = new DataTransfer();
            given.items.add(new File([text], name));
            {action}
        }}
        function when(condition, action) {{
            condition() ? action() : setTimeout(() => when(condition, action), 10);
        }}
        give({report}, "own.json");
        when(() => document.title.includes("own.json"), () => {{
            give("[1]", "wrong.json");
            when(() => document.body.textContent.includes("wrong.json cannot"), () => {{}});
        }});
    """
    dom = shown(viewer(), tmp_path, script)
    assert "own.json</title>" in dom
    assert re.search(r'<div id="empty"[^>]* hidden', dom)
    text = text_of(dom)
    assert "What was sent own.json" in text
    assert "3 collectives, 384 B" in text
    assert "wrong.json cannot be shown: it is no report of CommDebugMode" in text


@in_browser
def test_the_keyboard_is_enough(reports, tmp_path):
    script = """
        const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
        at("tree").querySelector("summary").focus();
        for (const key of ["End", "ArrowRight", "ArrowUp", "ArrowUp", "ArrowLeft"]) press(key);
        at("found").value = document.activeElement.querySelector(".code").textContent
            + [...at("tree").querySelectorAll("details.module")].map((each) => Number(each.open)).join("");
        press("/");
        at("source").textContent = document.activeElement.id;
    """
    text = text_of(shown((reports / "log.html").read_text(encoding="utf-8"), tmp_path, script))
    assert "Sequential1001" in text
    assert " filter Open a report" in text


@in_browser
def test_reports_of_pytorch_are_shown_too(tmp_path):
    """They have no bytes, and no lines."""
    operation = {
        "name": "aten.mm.default",
        "input_shape": ["torch.Size([4, 8])"],
        "input_sharding": ["(Shard(dim=0),)"],
    }
    report = {
        "fqn": "Global",
        "module_type": "",
        "parameters": [["weight", "(Shard(dim=0),)"]],
        "children": [],
        "collectives_forward": [["c10d_functional.all_reduce", 2]],
        "collectives_backward": [],
        "operations_forward": [operation],
        "operations_backward": [],
    }
    open_all = "for (const details of document.querySelectorAll('.body details')) details.open = true;"
    text = text_of(shown(viewer(), tmp_path, f"load({json.dumps(report)}, 'theirs'); {open_all}"))
    assert "theirs" in text
    assert "c10d_functional.all_reduce 2 × " in text
    assert "aten.mm.default torch.Size([4, 8]) (Shard(dim=0),)" in text


def test_texts_of_programs_do_not_end_the_report(tmp_path):
    class Odd(Module):
        def forward(self, x):
            return x

    Odd.__name__ = "</script><b>"
    with CommDebugMode() as mode:
        Odd()(torch.ones(1))
    mode.generate_html(tmp_path / "log.html")
    page = (tmp_path / "log.html").read_text(encoding="utf-8")
    assert page.count("</script>") == viewer().count("</script>")
    assert json.loads(page.partition('id="data">')[2].partition("</script>")[0])["children"][0]["fqn"] == "</script><b>"


def test_the_page_loads_nothing():
    page = viewer()
    assert "default-src 'none'" in page
    assert not re.search(r"""(src|href)=|https?:|@import|url\(""", page)
