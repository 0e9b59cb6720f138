"""What `--print-manifest` writes is valid for the scheduler, and runs the same command on every node."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

import weft
from tests.distributed.elastic.nodes import SECONDS
from weft.distributed.elastic.rendezvous.utils import free_port
from weft.distributed.run import command, main, parse_args

SAY = """
import os, sys
sys.stdout.write(" ".join([os.environ["RANK"], os.environ["WORLD_SIZE"], *sys.argv[1:]]) + "\\n")
"""
IMAGE = ("--container-image", "example.org/train:1")


@pytest.fixture
def manifest(capsys, monkeypatch):
    """The text for a command line."""
    for name in list(os.environ):
        if name.startswith(("PET_", "WEFT_", "JAX_", "XLA_", "OMP_", "NCCL_")):
            monkeypatch.delenv(name)

    def written(kind, *args):
        main(["--print-manifest", kind, *map(str, args)])
        return capsys.readouterr().out

    return written


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train me.py"
    path.write_text(SAY)
    return path


def options(text):
    """The `#SBATCH` lines, as Slurm reads them: above the first command."""
    head = text.partition("\nset ")[0].splitlines()
    assert head[0] == "#!/bin/bash"
    return dict(line.removeprefix("#SBATCH --").partition("=")[::2] for line in head if line.startswith("#SBATCH "))


def parts(text):
    """The manifests, each valid by the published schema."""
    found = list(yaml.safe_load_all(text))
    for part in found:
        kubernetes_validate.validate(part, "1.33", strict=True)
    return {part["kind"]: part for part in found}


def run_batch(text, env):
    """What a batch script prints; its syntax is checked as a whole before."""
    subprocess.run(["bash", "-n"], input=text, text=True, check=True, capture_output=True)
    done = subprocess.run(["bash"], input=text, text=True, capture_output=True, timeout=SECONDS, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- Slurm ---


def test_slurm_options(manifest):
    assert options(manifest("slurm", "--nnodes", "1:4", "--nproc-per-node", "8", "-m", "pkg.train")) == {
        "job-name": "pkg-train",
        "nodes": "1-4",
        "ntasks-per-node": "1",
        "cpus-per-task": "8",
        "no-kill": "",
    }
    assert options(manifest("slurm", "--nproc-per-node", "gpu", "--rdzv-id", "Job_7", "x.py")) == {
        "job-name": "job-7",
        "nodes": "1",
        "ntasks-per-node": "1",
    }


@pytest.fixture
def cluster(tmp_path):
    """An environment with stand-ins for Slurm's commands: two nodes, both this machine."""
    (tmp_path / "scontrol").write_text(
        "#!/bin/sh\n[ \"$*\" = 'show hostnames n[1-2]' ] && echo 127.0.0.1 && echo other\n"
    )
    (tmp_path / "srun").write_text(
        '#!/bin/sh\nwhile case $1 in --*) ;; *) false ;; esac; do echo "$1" >> srun.flags; shift; done\n'
        'if [ "$SLURM_JOB_NUM_NODES" = 2 ]; then "$@" & fi\n"$@" && wait\n'
    )
    for name in ("scontrol", "srun"):
        (tmp_path / name).chmod(0o755)
    return os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_ID": "17",
        "PYTHONPATH": str(Path(weft.__file__).parents[1]),
        "PWD": str(tmp_path),
    }


def test_the_batch_script_runs_on_all_nodes(manifest, script, cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ("--nnodes", "1:2", "--nproc-per-node", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"x:{free_port()}")
    text = manifest("slurm", *flags, "--rdzv-conf", "last_call_timeout=20", script, "a b", "$HOME")
    assert sorted(run_batch(text, cluster).splitlines()) == [f"{rank} 4 a b $HOME" for rank in range(4)]
    assert Path("srun.flags").read_text().split() == ["--kill-on-bad-exit=0", "--cpus-per-task=2", "--no-kill"]


def test_a_single_node_needs_no_rendezvous(manifest, script, cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_PLATFORM_NAME", "it's")
    text = manifest("slurm", "--no-python", "/bin/sh", "-c", 'echo "$WORLD_SIZE $JAX_PLATFORM_NAME"')
    assert run_batch(text, cluster | {"SLURM_JOB_NUM_NODES": "1"}) == "1 it's\n"
    assert "rdzv" not in text


# --- Kubernetes ---


def test_kubernetes_manifests_are_valid(manifest):
    flags = ("--nnodes", "2:4", "--nproc-per-node", 8, "--max-restarts", 3, "--log-dir", "/logs", *IMAGE)
    found = parts(manifest("kubernetes", *flags, "train_me.py", "--lr", "0.1"))
    assert list(found) == ["Secret", "Service", "Job"]
    assert {part["metadata"]["name"] for part in found.values()} == {"train-me"}
    job = found["Job"]["spec"]
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", 4, 4)
    assert job["backoffLimit"] == 3
    pod = job["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 60
    assert pod["subdomain"] == found["Service"]["metadata"]["name"]
    assert found["Service"]["spec"]["selector"] == {"job-name": "train-me"}
    assert len(found["Secret"]["stringData"]["WEFT_JOB_KEY"]) == 64
    [container] = pod["containers"]
    assert (container["image"], container["resources"]) == (IMAGE[1], {"requests": {"cpu": "8"}})
    assert container["volumeMounts"] == [{"name": "logs", "mountPath": "/logs"}]


def test_pods_run_the_command_and_find_each_other(manifest, script, tmp_path):
    flags = ("--nnodes", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"any:{free_port()}", *IMAGE)
    text = manifest("kubernetes", *flags, script, "a b", "$(JOB_UID)", "it's")
    program = parts(text)["Job"]["spec"]["template"]["spec"]["containers"][0]["command"]
    weft_run = f"{shlex.quote(sys.executable)} -m weft.distributed.run"
    assert "weft run" in program[2]
    program[2] = program[2].replace("weft run", weft_run).replace("train-me-0.train-me", "127.0.0.1")
    program[2] = program[2].replace("$$(", "$(")  # as Kubernetes does
    pods = [
        subprocess.Popen(
            program,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"JOB_COMPLETION_INDEX": str(index), "JOB_UID": "u", "WEFT_JOB_KEY": "k" * 16},
        )
        for index in (1, 0)
    ]
    said = [pod.communicate(timeout=SECONDS) for pod in pods]
    assert sorted(out for out, _ in said) == [f"{rank} 2 a b $(JOB_UID) it's\n" for rank in range(2)], said


@pytest.fixture(params=["PyYAML", "no package"])
def package(request, monkeypatch):
    if request.param == "no package":
        monkeypatch.setitem(sys.modules, "yaml", None)


@pytest.mark.parametrize(
    "value",
    ["1e3", "y", "null", "0o17", "1:30", "", "a\n", "  a\nb", "a \nb", "a\r\nb", "a\x1b\nb", "😀", "ü\u2028", "# a: b"],
)
def test_texts_stay_as_they_are(value, package, manifest, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORM_NAME", value)
    text = manifest("kubernetes", *IMAGE, "train.py", value)
    [container] = parts(text)["Job"]["spec"]["template"]["spec"]["containers"]
    assert container["env"][-1] == {"name": "JAX_PLATFORM_NAME", "value": value}
    assert shlex.split(container["command"][2])[-2:] == ["train.py", value]
    assert value not in ("1e3", "y") or f'"value": "{value}"' in text.replace(
        "value:", '"value":'
    )  # no texts to kubectl


def test_manifests_can_be_read(manifest, script):
    text = manifest("kubernetes", "--nnodes", 2, *IMAGE, script)
    assert text.startswith('apiVersion: "v1"\nkind: "Secret"\nmetadata:\n  name: "train-me"\nstringData:\n')
    assert '        - |-\n          [ "$JOB_COMPLETION_INDEX" = 0 ]' in text
    assert "            --nnodes=2:2 \\\n            --rdzv-backend=c10d \\\n" in text


# --- both ---


@pytest.mark.parametrize("kind", ["slurm", "kubernetes"])
def test_flags_are_handed_on_and_etcd_stays(kind, manifest):
    flags = [
        "--nnodes",
        "2:3",
        "--nproc-per-node",
        "auto",
        "--max-restarts",
        "2",
        "--rdzv-backend",
        "etcd",
        "--rdzv-endpoint",
        "e1:2379,e2:2379",
        "--rdzv-id",
        "it's",
        "--rdzv-conf",
        "join_timeout=9",
        "--tee",
        "3",
        "--duplicate-stdout-filters",
        "a,b",
        "--module",
        "--virtual-local-rank",
    ]
    text = manifest(kind, *flags, *IMAGE, "pkg.train", "--nnodes", "x")
    line = parts(text)["Job"]["spec"]["template"]["spec"]["containers"][0]["command"][2] if kind[0] == "k" else text
    words = shlex.split(
        line.partition("weft run" if kind[0] == "k" else "weft.distributed.run")[2].replace("\\\n", " ")
    )
    given, expected = parse_args(words), parse_args([*flags, "pkg.train", "--nnodes", "x"])
    if kind == "slurm":
        assert given.nnodes == "2:$SLURM_JOB_NUM_NODES"
        given.nnodes = expected.nnodes
    assert given == expected


@pytest.mark.parametrize("kind", ["slurm", "kubernetes"])
def test_secrets_do_not_come_into_a_manifest(kind, manifest, monkeypatch, caplog):
    monkeypatch.setenv("WEFT_JOB_KEY", "do not tell the key")
    monkeypatch.setenv("WEFT_API_TOKEN", "do not tell the token")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "gs://user:do not tell@host/path")
    monkeypatch.setenv("JAX_PLATFORM_NAME", "do tell")
    text = manifest(kind, *IMAGE, "x.py")
    assert "do tell" in text
    assert "do not tell" not in text
    assert [record.getMessage() for record in caplog.records] == [
        "--print-manifest leaves out what may be secret; set it on the nodes: JAX_COMPILATION_CACHE_DIR, WEFT_API_TOKEN"
    ]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["kubernetes", "x.py"], "needs the image that holds weft and the program: pass --container-image NAME"),
        (["slurm", "--rdzv-backend", "other", "x.py"], "knows the rendezvous c10d and etcd, got 'other'"),
        (["slurm", "--rdzv-backend", "etcd", "x.py"], "pass --rdzv-endpoint HOST:PORT[,...]"),
        (
            ["slurm", "--node-rank", "1", "--master-addr", "m", "x.py"],
            "leave out --node-rank 1, --master-addr m; the",
        ),
        (["slurm", "--rdzv-endpoint", "m:1", "x.py"], "--print-manifest: leave out --rdzv-endpoint m:1; the scheduler"),
        (["slurm", "--nnodes", "x", "x.py"], 'nnodes=x is not in "MIN:MAX" format'),
        (
            ["slurm", "--standalone", "--nnodes", "2", "x.py"],
            "--standalone is for a job of one machine",
        ),
        (["slurm", "--nproc-per-node", "many", "x.py"], "Unsupported nproc_per_node value: many"),
    ],
)
def test_bad_input_is_told(args, message, capsys):
    with pytest.raises(SystemExit, match=r"^1$"):
        command(["--print-manifest", *args])
    assert message in capsys.readouterr().err
