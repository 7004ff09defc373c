"""Files that survive a kill, and folders that one process writes."""

import errno
import json

import pytest

from srpo.ground.errors import SrpoError
from srpo.ground.files import append_event, exclusive_access, read_events, read_last_events, read_mapping, write_text
from srpo.ground.layout import RECORDS

pytestmark = pytest.mark.fault


def test_a_folder_has_one_writer(tmp_path):
    first, second = exclusive_access(tmp_path / "run"), exclusive_access(tmp_path / "run", 0.05)
    with first, pytest.raises(SrpoError, match="another process is writing here"), second:
        pass
    with exclusive_access(tmp_path / "run", 0.05):
        pass


def test_a_line_cut_off_by_a_kill_is_not_read(tmp_path):
    path = tmp_path / "log" / "events.jsonl"
    append_event(path, {"step": 1})
    with path.open("a") as log:
        log.write('{"step": 2')
    assert list(read_events(path)) == [{"step": 1}]


def test_what_a_killed_writer_had_begun_is_deleted(tmp_path):
    begun = tmp_path / ".summary.json.123.partial"
    begun.write_text("{")
    with exclusive_access(tmp_path):
        assert not begun.exists()


def test_a_file_that_cannot_be_replaced_stays_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "summary.json"
    write_text(path, "before")

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("srpo.ground.files.flush_to_disk", full)
    with pytest.raises(SrpoError, match=r"summary.json: cannot be written \(No space left on device\)"):
        write_text(path, "after")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_without_its_parts_is_named(name, tmp_path):
    path, key = tmp_path / name, next(iter(RECORDS[name]))
    for record, reason in (({}, f"no {key}"), ({key: True}, f"{key} = True")):
        path.write_text(json.dumps(record) + "\n")
        with pytest.raises(SrpoError, match=rf"{name}.*: damaged, {reason}; restore the file, or delete its folder$"):
            list(read_events(path)) if path.suffix == ".jsonl" else read_mapping(path)


@pytest.mark.parametrize(("line", "reason"), [(b"{", "not JSON"), (b"\xff", "not JSON"), (b"3", "not a JSON object")])
def test_a_damaged_line_is_named(line, reason, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b"\n")
    with pytest.raises(SrpoError, match=rf"log\.jsonl, line 2: {reason}"):
        list(read_events(path))
    with pytest.raises(SrpoError, match=rf"log\.jsonl, one of the last lines: {reason}"):
        read_last_events(path)
