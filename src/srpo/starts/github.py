"""Published splits: fetched once, verified byte for byte, parsed into questions.

Every file is pinned by its git blob id, so neither a mirror, nor a cache, nor the network has to be trusted.
"""

import hashlib
import urllib.request
from pathlib import Path

from srpo.experiment.config import Source, SourceFile
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_bytes, write_bytes
from srpo.questions.rows import Row, parse_rows

_RAW_HOST = "https://raw.githubusercontent.com"
_TIMEOUT_SECONDS = 60


def load_rows(source: Source, file: SourceFile, mirror: Path | None, cache: Path) -> list[Row]:
    """Fetch and parse one file of a source."""
    rows = parse_rows(fetch_source_file(source, file, mirror, cache), file.path)
    if len(rows) != file.rows:
        raise SrpoError(f"{file.path}: {len(rows)} rows found, {file.rows} expected")
    return rows[: file.first]


def fetch_source_file(source: Source, file: SourceFile, mirror: Path | None, cache: Path) -> bytes:
    """Read a file from the mirror if there is one, otherwise from the cache, otherwise over HTTPS into the cache.

    Args:
        mirror: a folder laid out like the repository.
        cache: a folder for downloads; one file per repository, commit and path.
    """
    if mirror is not None:
        return _verified(read_bytes(mirror / file.path), file, str(mirror / file.path))
    cached = cache / source.repository / source.commit / file.path
    if cached.is_file() and git_blob_id(content := cached.read_bytes()) == file.git_blob:
        return content
    url = f"{_RAW_HOST}/{source.repository}/{source.commit}/{file.path}"
    content = _verified(_download(url), file, url)
    write_bytes(cached, content)
    return content


def git_blob_id(content: bytes) -> str:
    """The id git gives to a file of this content: 40 hexadecimal digits."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _verified(content: bytes, file: SourceFile, where: str) -> bytes:
    found = git_blob_id(content)
    if found != file.git_blob:
        raise SrpoError(f"{where}: git blob {found} found, {file.git_blob} expected; not the pinned file")
    return content


def _download(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response:
        return response.read()
