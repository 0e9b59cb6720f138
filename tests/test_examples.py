"""The examples as a user runs them: as processes; the GPT is also killed, interrupted and started again."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

import weft
from tests.programs import ROOT, left_in, numbers, printed

TINY = ["--width", "16", "--layers", "2", "--heads", "2", "--context", "32", "--batch", "4", "--steps", "240"]
PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("gpt")


def environment_of(folder):
    """Runs share a cache of compiled programs, to save time; and compile, to end with the same bits."""
    shared = {"PYTHONPATH": str(ROOT / "src"), "WEFT_COMPILE_CACHE": str(folder / "xla"), "WEFT_TIER": "compiled"}
    return {**os.environ, **shared}


@contextmanager
def training(folder, name, *options):
    """The process of a tiny run."""
    command = [sys.executable, "examples/train_gpt.py", *TINY, "--checkpoint-every", "20", "--out", str(folder / name)]
    environment = environment_of(folder)
    process = subprocess.Popen(
        [*command, *options], cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finish(folder, name, *options):
    """Let a run come to its end; returns status, stdout and stderr."""
    with training(folder, name, *options) as process:
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err


def stop(folder, name, number):
    """Send a signal after the first checkpoint of a process; returns its status and the rest of stderr."""
    with training(folder, name) as process:
        assert any(line.startswith("checkpoint at step") for line in process.stderr)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        return process.returncode, err


def load(folder, name):
    return weft.load(folder / name / "checkpoint.weft")


@pytest.fixture(scope="module")
def undisturbed(folder):
    """A run from start to end: its stdout and stderr."""
    status, out, err = finish(folder, "whole")
    assert status == 0, err
    return out, err


@pytest.fixture(scope="module")
def disturbed(folder, undisturbed):
    """The same run, killed, then interrupted, then finished: statuses and stderr of the three processes."""
    killed = stop(folder, "parts", signal.SIGKILL)
    interrupted = stop(folder, "parts", signal.SIGINT)
    status, _, err = finish(folder, "parts")
    return killed, interrupted, (status, err)


@pytest.mark.slow
def test_it_learns_and_shows_it(folder, undisturbed):
    out, err = undisturbed
    losses = load(folder, "whole")["losses"]
    assert len(losses) == 240
    assert sum(losses[-20:]) < 0.75 * sum(losses[:20])
    assert re.search(r"^step 120/240  loss \d\.\d+  [\d,]+ tokens/s$", err, re.MULTILINE)
    assert re.search(r"^checkpoint at step 240  validation loss [23]\.\d+$", err, re.MULTILINE)
    assert (folder / "whole" / "loss.txt").read_text("utf-8") in out
    assert (folder / "whole" / "sample.txt").read_text("utf-8") in out
    assert (folder / "whole" / "loss.png").read_bytes().startswith(PNG)


@pytest.mark.slow
def test_learning_rates_compile_nothing(undisturbed):
    compiled = re.findall(r"^compiled .*", undisturbed[1], re.MULTILINE)
    assert len(compiled) == 4, "initial weights, steps, validation, characters of the sample"


@pytest.mark.soak  # distributed/test_resume.py has a run that goes on with the same bits
def test_a_killed_and_an_interrupted_run_go_on(disturbed):
    (killed, _), (interrupted, said), (status, err) = disturbed
    assert killed == -signal.SIGKILL
    assert interrupted == 130
    stopped = int(re.search(r"^stopped at step (\d+); the same command goes on from there$", said, re.MULTILINE)[1])
    assert f"going on at step {stopped} of" in err
    assert status == 0


@pytest.mark.soak
def test_interruptions_change_no_bit(folder, disturbed):
    whole, parts = load(folder, "whole"), load(folder, "parts")
    assert whole["model"].keys() == parts["model"].keys()
    for name, tensor in whole["model"].items():
        assert tensor.numpy().tobytes() == parts["model"][name].numpy().tobytes(), name
    assert whole["losses"] == parts["losses"]
    assert whole["validation"] == parts["validation"]
    assert whole["loader"] == parts["loader"]
    assert whole["loader"]["position"] == 4 * 240
    samples = [(folder / name / "sample.txt").read_text("utf-8") for name in ("whole", "parts")]
    assert samples[0] == samples[1]


@pytest.mark.slow
def test_a_finished_run_says_so(folder, undisturbed):
    status, out, err = finish(folder, "whole")
    assert (status, out) == (0, "")
    assert "holds a finished run of 240 steps; --restart trains anew" in err


@pytest.mark.slow
def test_other_settings_are_refused(folder, undisturbed):
    status, _, err = finish(folder, "whole", "--seed", "7")
    assert status == 1
    assert "its run has seed 0; give the same, another --out, or --restart" in err


@pytest.mark.soak
def test_restart_forgets_the_run(folder, undisturbed):
    shutil.copytree(folder / "whole", folder / "again")
    status, _, err = finish(folder, "again", "--steps", "1", "--restart")
    assert status == 0
    assert "going on" not in err
    assert len(load(folder, "again")["losses"]) == 1


# --- in two processes ---


@pytest.mark.soak
def test_the_demo_kills_a_worker_and_ends_with_the_curve_of_one_process(folder):
    """And with the bits of two processes that nobody disturbs."""
    environment = environment_of(folder)
    arguments = [*TINY, "--checkpoint-every", "20", "--out"]
    demo = subprocess.run(
        [sys.executable, "examples/demo.py", *arguments, str(folder / "demo")],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert demo.returncode == 0, demo.stderr
    behind = int(
        re.search(r"^demo: kill -9 \d+: .* behind the checkpoint of step (\d+)$", demo.stderr, re.MULTILINE)[1]
    )
    assert behind >= 96
    assert f"going on at step {behind:.0f} of" in demo.stderr
    assert numbers(r"^largest difference in the first 4 steps: (.*), in any step: ", demo.stdout)[0] < 1e-5
    assert numbers(r", in any step: (.*)$", demo.stdout)[0] < 0.1
    launcher = ["-m", "weft.distributed.run", "--standalone", "--nproc-per-node", "2", "examples/train_gpt.py"]
    subprocess.run(
        [sys.executable, *launcher, *arguments, str(folder / "calm")],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
        timeout=600,
    )
    calm, killed = load(folder, "calm"), load(folder, "demo/two")
    for name, tensor in calm["model"].items():
        assert tensor.numpy().tobytes() == killed["model"][name].numpy().tobytes(), name
    assert calm["losses"] == killed["losses"]
    samples = [(folder / name / "sample.txt").read_text("utf-8") for name in ("calm", "demo/two")]
    assert samples[0] == samples[1]


# --- the short ones, at a small size ---


@pytest.mark.soak
def test_digits_are_classified_and_the_best_weights_kept(tmp_path):
    out = printed(tmp_path, "digits.py", "--epochs", "4", "--width", "8", "--workers", "1")
    losses = numbers(r"^epoch \d: loss ([\d.]+)", out)
    accuracies = numbers(r"^epoch \d: .* accuracy ([\d.]+)%$", out)
    assert losses[-1] < 0.5 * losses[0]
    assert max(accuracies) > 90
    assert numbers(r"^runs/digits\.safetensors: accuracy ([\d.]+)% on 359 held-out images$", out) == [max(accuracies)]
    assert left_in(tmp_path) == ["runs/digits.safetensors"]
    kept = weft.serialization.load_file(tmp_path / "runs/digits.safetensors")
    assert kept["0.weight"].shape == (8, 1, 3, 3)


@pytest.mark.soak
def test_a_small_resnet_learns_coloured_digits(tmp_path):
    out = printed(tmp_path, "resnet20.py", "--blocks", "1", "--size", "8", "--width", "8", "--epochs", "3")
    losses = numbers(r"^epoch \d: loss ([\d.]+)", out)
    assert losses[-1] < 0.5 * losses[0]
    assert numbers(r"^epoch \d: .* accuracy ([\d.]+)%$", out)[-1] > 85
    assert numbers(r"^averaged weights: accuracy ([\d.]+)% on 359 held-out images$", out)[0] > 50
    assert left_in(tmp_path) == []


@pytest.mark.soak
def test_an_lstm_learns_characters(tmp_path):
    sizes = ["--steps", "100", "--batch", "8", "--length", "16", "--width", "16", "--hidden", "32", "--lr", "0.02"]
    out = printed(tmp_path, "lstm_language_model.py", *sizes, "--sample", "20")
    seen = numbers(r"^step \d+: perplexity ([\d.]+)", out)
    unseen = numbers(r"^step \d+: .* of unseen files ([\d.]+)$", out)
    assert len(seen) == len(unseen) == 10
    assert seen[0] > 40
    assert unseen[-1] < 21, "less than without a look at what comes before a character"
    assert out.rpartition("\n    def ")[2].removesuffix("\n").isascii()
    assert len(out.rpartition("\n\n")[2]) > 0
    assert left_in(tmp_path) == []


@pytest.mark.soak
def test_a_vae_improves_its_bound_and_draws(tmp_path):
    out = printed(tmp_path, "vae.py", "--epochs", "10", "--hidden", "64", "--latent", "4", "--png", "new.png")
    bounds = numbers(r"^epoch \d+: .* held out (-[\d.]+) with", out)
    divergences = numbers(r"with a divergence of ([\d.]+)$", out)
    assert len(bounds) == 10
    assert bounds[-1] > bounds[0] + 2
    assert bounds[-1] > -27
    assert all(0 < divergence < 10 for divergence in divergences)
    assert len(re.findall(r"^[ .:=+*#%@-]{128}$", out, re.MULTILINE)) == 16, "two rows of eight images"
    assert left_in(tmp_path) == ["new.png"]
    assert (tmp_path / "new.png").read_bytes().startswith(PNG)


@pytest.mark.soak
def test_a_network_of_pytorchs_is_fine_tuned(tmp_path):
    out = printed(tmp_path, "fine_tune.py", "--steps", "30")
    share = r"accuracy ([\d.]+)%"
    assert numbers(rf"^digits_0_to_4\.pt: {share} on the digits 0 to 4$", out) == [100]
    (new,) = numbers(rf"^new head: {share}$", out)
    (head,) = numbers(rf"^trained head: {share}$", out)
    (whole,) = numbers(rf"^trained all layers: {share}$", out)
    assert new < 50 < 80 < head
    assert whole > 85
    assert left_in(tmp_path) == []


# --- in four processes ---


@pytest.mark.soak
def test_a_gpt_is_sharded_and_tensor_parallel(folder):
    sizes = ["--steps", "8", "--width", "16", "--context", "16", "--layers", "1", "--batch", "4", "--lr", "0.02"]
    launcher = ["-m", "weft.distributed.run", "--standalone", "--nproc-per-node", "4"]
    done = subprocess.run(
        [sys.executable, *launcher, "examples/train_gpt_parallel.py", *sizes],
        cwd=ROOT,
        env={**environment_of(folder), "WEFT_TIER": "interpreted"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    losses = numbers(r"^step \d: loss ([\d.]+)$", done.stdout)
    assert len(losses) == 8
    assert losses[-1] < losses[0] - 0.3
    assert re.search(r"^ *Row 16-31 +cpu:2 *$", done.stdout, re.MULTILINE), done.stdout
    of_all = done.stdout.partition("FSDPGPT")[0]
    sent = [(name, int(count)) for name, count in re.findall(r"\*(\w+): (\d+), \d+ bytes", of_all)]
    forward, backward = dict(sent[:2]), dict(sent[2:])
    assert forward == {"all_gather_into_tensor": 2, "all_reduce": 4}
    assert backward == {"all_gather_into_tensor": 1, "all_reduce": 1, "reduce_scatter_tensor": 2}
