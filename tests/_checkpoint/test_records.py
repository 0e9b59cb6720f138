"""Members of archives by PyTorch's names, archives without elements, and locations of a program's own."""

import io
import sys
import zipfile

import pytest

import weft
from weft import nn, serialization
from weft.utils.serialization import config

MEMBERS = {"a": b"12039810948234589", "c/d": b"94589480984058"}


def saved(obj, **options):
    file = io.BytesIO()
    weft.save(obj, file, **options)
    file.seek(0)
    return file


@pytest.mark.parametrize("at_path", [False, True])
def test_members_are_written_and_read(tmp_path, at_path):
    target = str(tmp_path / "members.zip") if at_path else io.BytesIO()
    with serialization._open_zipfile_writer(target) as writer:
        for name, content in MEMBERS.items():
            writer.write_record(name, content, len(content))
        writer.write_record("storage", weft.arange(3, dtype=weft.uint8).untyped_storage(), 2)
        assert writer.get_all_written_records() == {*MEMBERS, "storage"}
        with pytest.raises(RuntimeError, match="Tried to serialize file twice: a"):
            writer.write_record("a", b"", 0)
    with pytest.raises(RuntimeError, match="the archive is complete"):
        writer.write_record("b", b"", 0)
    with serialization._open_zipfile_reader(target) as reader:
        assert {name: reader.get_record(name) for name in MEMBERS} == MEMBERS
        assert reader.get_all_records() == [*MEMBERS, "storage", "version", "byteorder", ".data/serialization_id"]
        assert (reader.has_record("a"), reader.has_record("b")) == (True, False)
        assert reader.get_record_size("c/d") == 14
        assert reader.get_record_offset("c/d") % 64 == 0 < reader.get_record_header_offset("c/d")
        assert reader.get_storage_from_record("storage", 2, weft.UntypedStorage).tolist() == [0, 1]
        with pytest.raises(RuntimeError, match=r"record size \(2 bytes\) does not match expected size \(4 bytes"):
            reader.get_storage_from_record("storage", 1, weft.float32)
        assert len(reader.serialization_id()) == 40
        with pytest.raises(RuntimeError, match="failed locating file b: file not found"):
            reader.get_record("b")
        assert not serialization._is_torchscript_zip(reader)


def test_files_that_are_no_archives_are_refused(tmp_path):
    (tmp_path / "text").write_bytes(b"text")
    for file in (tmp_path / "text", io.BytesIO(b"text")):
        with pytest.raises(RuntimeError, match="truncated or damaged"):
            weft.PyTorchFileReader(file)
    with pytest.raises(AttributeError, match="has no callable attribute 'write'"):
        serialization._open_zipfile_writer_buffer(object())
    assert serialization._is_zipfile(saved(1))
    assert not serialization._is_zipfile(saved(1, _use_new_zipfile_serialization=False))


def test_elements_can_be_written_later():
    state = {"x": weft.ones(2, 3), "y": weft.arange(4)}
    with serialization.skip_data():
        file = saved(state)
    assert [x.tolist() for x in weft.load(file).values()] == [[[0.0] * 3] * 2, [0] * 4]
    with serialization._open_zipfile_reader(file) as reader:
        places = [reader.get_record_offset(f"data/{at}") for at in range(2)]
    for place, x in zip(places, state.values(), strict=True):
        file.seek(place)
        file.write(x.numpy().tobytes())
    file.seek(0)
    assert [x.tolist() for x in weft.load(file).values()] == [x.tolist() for x in state.values()]
    file.seek(0)
    with serialization.skip_data():
        assert weft.load(file)["y"].tolist() == [0] * 4
    with serialization.skip_data(), pytest.raises(RuntimeError, match="Cannot serialize nested tensor under skip_data"):
        saved(weft.nested.nested_tensor([weft.ones(2), weft.ones(3)]))
    with serialization.skip_data(), pytest.warns(UserWarning, match="meta device under skip_data .* is a no-op"):
        saved(weft.ones(2, device="meta"))
    with serialization.skip_data(), pytest.raises(RuntimeError, match="Cannot use skip_data=True"):
        saved(1, _use_new_zipfile_serialization=False)
    assert not serialization._serialization_tls.skip_data


def test_archives_without_checksums_are_loaded():
    serialization.set_crc32_options(False)
    try:
        file = saved({"x": weft.ones(3)})
    finally:
        serialization.set_crc32_options(True)
    with zipfile.ZipFile(file) as archive, pytest.raises(zipfile.BadZipFile, match="Bad CRC-32 for file"):
        archive.read("archive/data/0")
    file.seek(0)
    assert weft.load(file)["x"].tolist() == [1, 1, 1]


def test_places_of_members_are_multiples_of_a_setting(tmp_path):
    path = tmp_path / "x.pt"
    with config.patch("save.storage_alignment", 4096):
        weft.save(nn.Linear(10, 10).state_dict(), path)
    for lazily in (False, True):
        with config.patch({"load.mmap": lazily}):
            assert weft.load(path)["weight"].shape == (10, 10)
    assert (config.save.storage_alignment, config.load.mmap) == (64, False)
    meta = weft.load(path, map_location="meta")
    assert meta["weight"].untyped_storage()._checkpoint_offset % 4096 == 0


@pytest.mark.parametrize("in_archive", [True, False])
def test_tensors_without_elements_share_whole_storages(in_archive):
    whole = weft.arange(16.0)
    file = saved({"a": whole[:8], "b": whole[8:]}, _use_new_zipfile_serialization=in_archive)
    meta = weft.load(file, map_location="meta")
    file.seek(0)
    with weft._subclasses.fake_tensor.FakeTensorMode():
        fakes = weft.load(file)
    assert fakes["a"].device == weft.device("cpu")
    for state in (meta, fakes):
        storages = [x.untyped_storage() for x in state.values()]
        assert storages[0]._cdata == storages[1]._cdata
        assert (storages[0].nbytes(), state["b"].storage_offset()) == (64, 8)
        assert storages[0]._checkpoint_offset > 0
    assert weft.ones(1).untyped_storage()._checkpoint_offset is None


def test_fake_tensors_are_saved_as_zeros_that_share():
    with weft._subclasses.fake_tensor.FakeTensorMode():
        x = weft.ones(2, 3)
        state = {"x": x, "flat": x.view(-1), "row": x[1]}
    with serialization.skip_data(materialize_fake_tensors=True):
        found = weft.load(saved(state))
    assert (found["x"].device, found["x"].tolist()) == (weft.device("cpu"), [[0.0] * 3] * 2)
    found["x"].fill_(1)
    assert (found["row"].tolist(), found["flat"].tolist()) == ([1] * 3, [1] * 6)
    with pytest.raises(RuntimeError, match="a fake tensor has no elements"):
        saved(state)


@pytest.fixture
def registry():
    before = list(serialization._package_registry)
    yield
    serialization._package_registry[:] = before


@pytest.mark.usefixtures("registry")
def test_locations_of_a_programs_own():
    asked = []

    def restore(elements, location):
        asked.append(location)
        return elements.cpu() if location == "shelf" else None

    serialization.register_package(5, lambda storage: "shelf" if storage.nbytes() == 12 else None, restore)
    file = saved([weft.ones(3), weft.ones(2)])
    assert serialization.location_tag(weft.ones(3).untyped_storage()) == "shelf"
    assert [x.tolist() for x in weft.load(file)] == [[1, 1, 1], [1, 1]]
    assert set(asked) == {"shelf", "cpu"}
    file.seek(0)
    serialization._package_registry.pop(0)
    with pytest.raises(RuntimeError, match=r"don't know how to restore .* \(tagged with shelf\)"):
        weft.load(file)
    file.seek(0)
    found = weft.load(file, map_location=lambda elements, _: serialization.default_restore_location(elements, "meta"))
    assert {x.device for x in found} == {weft.device("meta")}


def test_helpers_that_libraries_call():
    assert str(serialization.StorageType("FloatStorage")) == "StorageType(dtype=torch.float32)"
    with pytest.raises(KeyError, match="is not recognized"):
        serialization.StorageType("NoStorage")
    assert serialization.normalize_storage_type(weft.UntypedStorage) is weft.UntypedStorage
    storage = weft.UntypedStorage(4)
    for wanted in ("meta", weft.device("meta"), {"cpu": "meta"}):
        assert serialization._get_restore_location(wanted)(storage, "cpu").device == weft.device("meta")
    assert serialization._get_restore_location(None)(storage, "cpu") is storage
    with pytest.raises(RuntimeError, match="Attempting to deserialize object on a CUDA device"):
        serialization.validate_cuda_device("cuda:99")
    assert serialization.check_module_version_greater_or_equal(pytest, (6, 0))
    with pytest.raises(RuntimeError, match="version string is malformed"):
        serialization.check_module_version_greater_or_equal(sys, (1,))
    with serialization._open_file_like(io.BytesIO(b"x"), "rb") as file:
        assert file.read() == b"x"
    with pytest.raises(RuntimeError, match="Expected 'r' or 'w' in mode but got x"):
        serialization._open_file_like(file, "x")
