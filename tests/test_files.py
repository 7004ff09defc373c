"""Files that survive a kill, and folders that one process writes."""

import pytest

from srpo.errors import SrpoError
from srpo.files import append_event, only_writer, read_events


def test_a_folder_has_one_writer(tmp_path):
    first, second = only_writer(tmp_path / "run"), only_writer(tmp_path / "run", 0.05)
    with first, pytest.raises(SrpoError, match="another process is writing here"), second:
        pass
    with only_writer(tmp_path / "run", 0.05):
        pass


def test_a_line_cut_off_by_a_kill_is_not_read(tmp_path):
    path = tmp_path / "log" / "events.jsonl"
    append_event(path, {"step": 1})
    with path.open("a") as log:
        log.write('{"step": 2')
    assert list(read_events(path)) == [{"step": 1}]
