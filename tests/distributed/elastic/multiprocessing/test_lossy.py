"""Streams that lose what a full disk cannot take."""

import io
import subprocess
import sys

import pytest

from weft.distributed.elastic.multiprocessing._lossy import _lossy


@pytest.mark.parametrize("buffering", [0, -1])
def test_a_full_disk_is_not_an_error(buffering):
    with open("/dev/full", "wb", buffering) as full, io.TextIOWrapper(full, write_through=not buffering) as text:
        lossy = _lossy(text)
        assert lossy.write("x" * 100_000) == 100_000
        lossy.flush()
        lossy.buffer.write(b"y" * 100_000)
        lossy.buffer.flush()
        assert (lossy.encoding, lossy.write_through) == (text.encoding, text.write_through)
        lossy.close()


def test_streams_of_files_write_on(tmp_path):
    code = (
        "import sys; from weft.distributed.elastic.multiprocessing._lossy import survive_full_disks\n"
        "print('first'); survive_full_disks(); print('second'); sys.stdout.buffer.write(b'third\\n'); print('fourth')"
    )
    for flags in ([], ["-u"]):
        with open(tmp_path / "out", "w") as out:
            subprocess.run([sys.executable, *flags, "-c", code], stdout=out, check=True)
        assert sorted((tmp_path / "out").read_text().split()) == ["first", "fourth", "second", "third"]
