"""What another user of the host has put where a job looks. It takes root to be two users."""

import os
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import weft
import weft.distributed.checkpoint as dcp
from weft import hub
from weft._base.files import atomic_write, followed
from weft._base.flight import RECORDING, start_flight_recorder
from weft._base.temporary import temporary_folder
from weft._comm.stores.file_store import FileStore
from weft._comm.transport.key import job_key
from weft.errors import DistNetworkError, DistStoreError, HubError
from weft.utils.tensorboard import SummaryWriter

STRANGER = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users; to run these tests: sudo")


@pytest.fixture
def common():
    """A folder that all users may write."""
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


def strangers_do(script, folder):
    subprocess.run(["/bin/sh", "-c", script], cwd=folder, user=STRANGER, group=STRANGER, extra_groups=[], check=True)


def test_a_key_that_a_stranger_has_laid_there_is_refused(common, monkeypatch):
    monkeypatch.delenv("WEFT_JOB_KEY", raising=False)
    monkeypatch.delenv("WEFT_JOB_KEY_FILE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(common))
    strangers_do("umask 077; mkdir weft; echo a key that the stranger knows > weft/job.key", common)
    refused = r"^the job's key in '.*/weft/job.key' belongs to user 65534, and this process is user 0's; make a file"
    with pytest.raises(DistNetworkError, match=refused):
        job_key()


@pytest.mark.parametrize("script", ["umask 077; : > store", "umask 077; printf 'weft-file-store-2\\n' > store"])
def test_a_store_that_a_stranger_has_laid_there_is_refused(common, script):
    strangers_do(script, common)
    content = (common / "store").read_bytes()
    with pytest.raises(DistStoreError, match=r"^FileStore: '.*/store' belongs to user 65534, who could change what "):
        FileStore(str(common / "store"), 1)
    assert (common / "store").read_bytes() == content


def test_a_store_that_a_stranger_puts_in_the_place_of_ours_is_refused(common):
    store = FileStore(str(common / "store"), 1)
    store.set("k", "v")
    strangers_do("mv store old; umask 077; cat > new < /dev/null; mv new store; rm old", common)
    with pytest.raises(DistStoreError, match=r"^FileStore: '.*/store' belongs to user 65534, who could change what "):
        store.get("k")
    store.close()


@pytest.mark.parametrize("prefix", ["torchelastic_agent_", "watchdog_timer_"])
@pytest.mark.parametrize("depth", [1, 3000])
def test_folders_that_a_stranger_has_laid_in_the_temporary_folder_stop_no_job(common, prefix, depth):
    common.chmod(0o1777)
    laid = [common / f"{prefix}{number:08}" for number in range(3000 // depth)]
    for folder in laid:
        folder.mkdir()
        with chdir(folder):
            for _ in range(depth):
                os.mkdir("d")
                os.chdir("d")
        os.chown(folder, STRANGER, STRANGER)
    environment = {**os.environ, "TMPDIR": str(common), "TORCHELASTIC_ENABLE_FILE_TIMER": "1"}
    command = [sys.executable, "-m", "weft", "run", "--standalone", "--no-python", "echo", "hello"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "hello\n"
    assert all(folder.exists() for folder in laid)
    subprocess.run(["rm", "-r", *laid], check=True)


@pytest.mark.parametrize("script", ["mkdir weft-0", "ln -s . weft-0", "mkdir -m 700 weft-0", "echo > weft-0"])
def test_a_stranger_who_has_taken_the_name_of_our_folder_gets_nothing(common, script, monkeypatch):
    common.chmod(0o1777)
    strangers_do(script, common)
    monkeypatch.setattr("tempfile.tempdir", str(common))
    folder = Path(temporary_folder("torchelastic_agent_"))
    assert folder.parent.stat().st_uid == 0
    assert folder.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_links_of_strangers_are_not_followed(common, mode):
    common.chmod(mode)
    with TemporaryDirectory() as home:
        owned = Path(home, "model.weft")
        owned.write_text("precious")
        strangers_do(f"ln -s {owned} model.weft; ln -s {home}/new store", common)
        with pytest.raises(PermissionError, match="a link that user 65534 has put there is not used; choose another"):
            weft.save(weft.ones(2), common / "model.weft")
        with pytest.raises(DistStoreError, match="cannot be opened: a link that user 65534 has put there is not used"):
            FileStore(str(common / "store"), 1)
        assert owned.read_text() == "precious"
        assert os.listdir(home) == ["model.weft"]
        Path(common, "mine").symlink_to(owned)
        weft.save(weft.ones(2), common / "mine")
        assert weft.load(owned).tolist() == [1, 1]


def test_links_in_a_folder_of_a_stranger_are_followed_as_elsewhere(common):
    """The folder's owner could as well have put the file there."""
    common.chmod(0o1777)
    os.chown(common, STRANGER, STRANGER)
    strangers_do("ln -s x link", common)
    assert followed(common / "link") == common / "x"


def test_recordings_and_reports_go_into_no_file_of_a_stranger(common):
    strangers_do(f"umask 0; : > {RECORDING}; ln -s elsewhere report", common)
    with pytest.raises(PermissionError, match="not a file of this user, with this name only; remove it: "):
        start_flight_recorder(common)
    with atomic_write(common / "report", private=True) as file:
        file.write(b"what the workers did")
    assert not (common / "report").is_symlink()
    assert (common / "report").stat().st_mode & 0o777 == 0o600
    assert not (common / "elsewhere").exists()


def test_a_file_does_not_keep_the_mode_that_a_stranger_has_chosen(common):
    strangers_do(": > model.weft; chmod 666 model.weft", common)
    weft.save(weft.ones(2), common / "model.weft")
    assert (common / "model.weft").stat().st_uid == 0
    assert not (common / "model.weft").stat().st_mode & 0o022


CACHED = "import weft; print((weft.ones(4) * 2).exp().sum().item())"


@pytest.mark.parametrize("planted", ["folder", "entry", "mode", "above"])
def test_programs_that_a_stranger_could_have_compiled_are_not_loaded(common, planted):
    common.chmod(0o755)
    environment = {**os.environ, "WEFT_COMPILE_CACHE": str(common / "xla"), "WEFT_TIER": "compiled"}

    def run():
        done = subprocess.run(
            [sys.executable, "-c", CACHED], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith("29.5562")
        return done.stderr

    assert run() == run() == ""
    (folder,) = (common / "xla").iterdir()
    kept = sorted(os.listdir(folder))
    match planted:
        case "folder":
            os.chown(folder, STRANGER, STRANGER)
        case "entry":
            folder.chmod(0o755)
            (folder / "planted-cache").touch()
            os.chown(folder / "planted-cache", STRANGER, STRANGER)
            kept = sorted([*kept, "planted-cache"])
        case "mode":
            folder.chmod(0o777)
        case "above":
            (common / "xla").chmod(0o777)
    assert ", so no compiled programs are kept or found there; set WEFT_COMPILE_CACHE to a folder of your own" in run()
    assert sorted(os.listdir(folder)) == kept


@pytest.mark.parametrize("planted", ["hub", "hub/trusted_list", "hub/me_nets_main"])
def test_a_repository_that_a_stranger_could_have_put_there_is_not_run(common, planted, monkeypatch):
    (common / "hub" / "me_nets_main").mkdir(parents=True)
    (common / "hub" / "me_nets_main" / "hubconf.py").write_text("def net(): return 1\n")
    (common / "hub" / "trusted_list").write_text("me/nets\n")
    monkeypatch.setenv("TORCH_HOME", str(common))
    monkeypatch.delenv("WEFT_HOME", raising=False)
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    assert hub.load("me/nets:main", "net", trust_repo="check") == 1
    os.chown(common / planted, STRANGER, STRANGER)
    with pytest.raises(HubError, match=f"{planted} belongs to user 65534, so its code could be anybody's; set another"):
        hub.load("me/nets:main", "net", trust_repo="check")
    os.chown(common / planted, 0, 0)
    (common / planted).chmod(0o777)
    with pytest.raises(HubError, match=r"may be written by others \(mode 0777\), so its code could be anybody's"):
        hub.load("me/nets:main", "net", trust_repo="check")


def profile_to(write):
    def save(path):
        with weft.profiler.profile(with_stack=True) as profile:
            weft.ones(3).sum().item()
        write(profile, str(path))

    return save


FILES = {
    "save": lambda path: weft.save({"x": weft.ones(3)}, path),
    "trace": profile_to(lambda profile, path: profile.export_chrome_trace(path)),
    "stacks": profile_to(lambda profile, path: profile.export_stacks(path)),
    "snapshot of memory": weft.cuda.memory._dump_snapshot,
}


@pytest.mark.parametrize("save", FILES.values(), ids=FILES)
def test_a_file_is_not_written_where_a_stranger_leads_it(common, tmp_path, save):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    strangers_do(f"ln -s {victim} link; mkfifo -m 666 pipe", common)
    for name, kind in (("link", "a link"), ("pipe", "a pipe")):
        with pytest.raises(PermissionError, match=f"{kind} that user {STRANGER} has put there is not used"):
            save(common / name)
    assert victim.read_text() == "precious"


FOLDERS = {
    "checkpoint": lambda path: dcp.save({"x": weft.ones(3)}, checkpoint_id=path),
    "events": lambda path: SummaryWriter(str(path)).close(),
    "recording": lambda path: start_flight_recorder(path, rank=0),
}


@pytest.mark.parametrize("save", FOLDERS.values(), ids=FOLDERS)
def test_a_folder_is_not_written_where_a_stranger_leads_it(common, tmp_path, save):
    strangers_do(f"ln -s {tmp_path} link", common)
    with pytest.raises((PermissionError, dcp.CheckpointException), match=f"user {STRANGER} has put there is not used"):
        save(common / "link")
    assert not list(tmp_path.iterdir())
