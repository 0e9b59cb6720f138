"""Files that are written whole or not at all."""

from __future__ import annotations

import pytest

from weft._base.files import written_whole


def test_a_file_takes_its_place_at_the_end(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with written_whole(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
        file.seek(0)
        assert file.read() == b"new"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_who_may_read_a_file_may_read_the_next_one(tmp_path):
    path = tmp_path / "x"
    path.touch(0o600)
    with written_whole(path) as file:
        (part,) = set(tmp_path.iterdir()) - {path}
        assert part.stat().st_mode == path.stat().st_mode
        file.write(b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_error_leaves_what_was_there(error, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def fail():
        with written_whole(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError), written_whole(tmp_path / "none" / "x"):
        pass
