"""Published splits: the bytes are the pinned ones or there is an error."""

import json
import urllib.request
from pathlib import Path

import pytest
import yaml
from paths import SHARED

from srpo.experiment.config import Source, SourcedBenchmark, SourceFile
from srpo.ground import files
from srpo.ground.errors import SrpoError
from srpo.ground.repository import CONFIGS
from srpo.questions.rewards import shortest_answer
from srpo.starts.data import build_split, split_statistics
from srpo.starts.github import fetch_source_file, git_blob_id, load_rows

ROWS = [
    {"prompt": "1+1?\u2028", "answer": "B", "system": "Pick.", "kind": "mcq"},
    {"prompt": "2+2?", "answer": "A", "system": None},
    {"prompt": "3+3?", "answer": "C", "system": ""},
    {"prompt": "4+4?", "answer": "D"},
]
CONTENT = "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS).encode() + b"\n"
SDPO = SHARED / "data" / "sdpo"


def pinned(content: bytes = CONTENT, rows: int = 4) -> tuple[Source, SourceFile]:
    file = SourceFile(path="datasets/toy/test.json", git_blob=git_blob_id(content), rows=rows)
    return Source(repository="lasgroup/SDPO", commit="0" * 40, train=file, test=file), file


def mirror(root: Path, content: bytes = CONTENT) -> Path:
    path = root / "mirror" / "datasets" / "toy" / "test.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return root / "mirror"


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch):
    """A network whose only page can be set; records what is asked for."""

    class Network:
        page: bytes | Exception = CONTENT
        asked: list[str]

        def __init__(self):
            self.asked = []

        def urlopen(self, url, timeout):
            self.asked.append(url)
            if isinstance(self.page, Exception):
                raise self.page
            path = Path(self.folder / "page")
            path.write_bytes(self.page)
            return path.open("rb")

    fake = Network()
    monkeypatch.setattr(urllib.request, "urlopen", fake.urlopen)
    return fake


@pytest.fixture
def cache(tmp_path: Path, network) -> Path:
    network.folder = tmp_path
    return tmp_path / "cache"


def test_blob_id_is_gits():
    # echo hello | git hash-object --stdin; and git's empty blob
    assert git_blob_id(b"hello\n") == "ce013625030ba8dba906f756967f9e9ca394464a"
    assert git_blob_id(b"") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


def test_rows_become_messages_with_a_system_message_only_where_there_is_one(tmp_path, network, cache):
    rows = load_rows(*pinned(), mirror(tmp_path), cache)
    assert [[m["role"] for m in row.messages] for row in rows] == [["system", "user"], ["user"], ["user"], ["user"]]
    assert rows[0].messages[1]["content"] == "1+1?\u2028"
    assert [row.ground_truth for row in rows] == list("BACD")
    assert network.asked == []


def test_a_changed_byte_is_refused(tmp_path, cache):
    changed = CONTENT.replace(b'"B"', b'"A"')
    with pytest.raises(SrpoError, match="not the pinned file") as caught:
        fetch_source_file(*pinned(), mirror(tmp_path, changed), cache)
    for part in ("datasets/toy/test.json", git_blob_id(changed), git_blob_id(CONTENT)):
        assert part in str(caught.value)


def test_the_wrong_number_of_rows_is_refused(tmp_path, cache):
    with pytest.raises(SrpoError, match=r"^datasets/toy/test\.json: 4 rows found, 5 expected$"):
        load_rows(*pinned(rows=5), mirror(tmp_path), cache)


def test_a_download_is_cached(network, cache):
    for _ in range(2):
        assert fetch_source_file(*pinned(), None, cache) == CONTENT
    assert network.asked == [f"https://raw.githubusercontent.com/lasgroup/SDPO/{'0' * 40}/datasets/toy/test.json"]
    assert [path.name for path in cache.rglob("*") if path.is_file()] == ["test.json"]


def test_a_damaged_cache_is_replaced(network, cache):
    fetch_source_file(*pinned(), None, cache)
    (cached,) = (path for path in cache.rglob("*") if path.is_file())
    cached.write_bytes(b"half a fi")
    assert fetch_source_file(*pinned(), None, cache) == CONTENT
    assert cached.read_bytes() == CONTENT


def test_a_wrong_download_is_not_cached(network, cache):
    network.page = b"<html>sign in</html>"
    with pytest.raises(SrpoError, match="not the pinned file"):
        fetch_source_file(*pinned(), None, cache)
    assert not cache.exists()


def test_the_default_cache_follows_the_environment(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert files.default_cache() == Path("/somewhere/srpo")


@pytest.mark.skipif(not SDPO.is_dir(), reason=f"no copy of the published splits at {SDPO}")
@pytest.mark.parametrize("name", ["biology", "chemistry", "materials", "physics", "tooluse"])
def test_the_published_splits_are_the_papers(tmp_path, name):
    benchmark = SourcedBenchmark(name=name, **yaml.safe_load((CONFIGS / f"benchmarks/sdpo/{name}.yaml").read_text()))
    splits = {
        split: build_split(benchmark, split, SDPO, tmp_path)
        for split in ("train", "test")
        if (SDPO / getattr(benchmark.source, split).path).exists()
    }
    statistics = split_statistics(benchmark, splits)
    assert statistics["rows"] == {split: getattr(benchmark.source, split).rows for split in splits}
    if name == "tooluse":
        never_right = [q for q in splits["test"] if shortest_answer(benchmark.reward, q.ground_truth) is None]
        assert (len(never_right), len(splits["test"])) == (2, 68)  # docs/paper.md
        assert [m["role"] for m in splits["test"][0].messages] == ["user"]
    else:
        assert {q.ground_truth for q in splits["test"]} <= set("ABCD")
        assert [m["role"] for m in splits["test"][0].messages] == ["system", "user"]
    assert splits["test"][0].data_source == f"sdpo/{name}"


def test_first_uses_the_first_rows_of_a_file_that_is_checked_whole(tmp_path: Path, cache: Path):
    source, file = pinned()
    few = file.model_copy(update={"first": 2})
    rows = load_rows(source, few, mirror(tmp_path), cache)
    assert rows == load_rows(source, file, tmp_path / "mirror", cache)[:2]
    with pytest.raises(SrpoError, match=r"4 rows found, 5 expected"):
        load_rows(source, few.model_copy(update={"rows": 5}), tmp_path / "mirror", cache)
    benchmark = SourcedBenchmark(
        kind="sourced", name="toy", title="Toy", reward="answer_match", source=source.model_copy(update={"test": few})
    )
    assert (benchmark.questions("train"), benchmark.questions("test")) == (4, 2)
    with pytest.raises(ValueError, match="first = 9: the file has 4 rows"):
        SourceFile(**file.model_dump() | {"first": 9})
