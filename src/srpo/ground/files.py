"""Files: errors of reading that name them, and atomic writes and append-only logs, of which a kill leaves no half."""

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from srpo.ground.errors import SrpoError
from srpo.ground.layout import RECORDS

_CURE = "; restore the file, or delete its folder"

_PARTIAL = ".partial"
"""End of the name of a file that is being written."""


def default_cache() -> Path:
    """The folder ``srpo`` below the user's cache folder (``XDG_CACHE_HOME``, otherwise ``~/.cache``)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "srpo"


# ---------------------------------------------------------------- reading


def read_bytes(path: Path) -> bytes:
    """The content of a file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise SrpoError(f"{path}: cannot be read ({error.strerror})") from error


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    return _json_object(read_bytes(path), str(path), path.name)


def _json_object(content: bytes, where: str, name: str) -> dict[str, Any]:
    cure = _CURE if name in RECORDS else ""
    try:
        value = json.loads(content)
    except ValueError as error:
        raise SrpoError(f"{where}: not JSON: {error}{cure}") from error
    if not isinstance(value, dict):
        raise SrpoError(f"{where}: not a JSON object{cure}")
    return _complete(value, where, name)


def _complete(record: dict[str, Any], where: str, name: str) -> dict[str, Any]:
    """A record of a file, if it has what those of files with this name have."""
    for key, kind in RECORDS.get(name, {}).items():
        if not isinstance(record.get(key), kind) or isinstance(record[key], bool):
            what = f"{key} = {record[key]!r:.80}" if key in record else f"no {key}"
            raise SrpoError(f"{where}: damaged, {what}{_CURE}")
    return record


def read_yaml(path: Path) -> Any:
    """What a YAML file has."""
    return parse_yaml(read_bytes(path), str(path))


def parse_yaml(text: str | bytes, where: str) -> Any:
    """What YAML says; ``where`` names it in the error."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SrpoError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from error


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    return _complete(parse_mapping(read_bytes(path), str(path)), str(path), path.name)


def parse_mapping(text: str | bytes, where: str) -> dict[str, Any]:
    """A mapping from its YAML; ``where`` names it in the error."""
    content = parse_yaml(text, where)
    if not isinstance(content, dict):
        found = "nothing" if content is None else type(content).__name__
        raise SrpoError(f"{where}: a mapping of keys to values is expected, found {found}")
    return content


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # libyaml's is six times faster
    """Refuses a key that a mapping has twice, of which YAML's own loader keeps the last; and numbers that are octal
    (``010`` is 8) or in base 60 (``1:30`` is 90)."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        is_number = node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
        if is_number and re.fullmatch(r"[-+]?0[\d_]+|.*:.*", node.value):
            raise yaml.constructor.ConstructorError(problem=f"{node.value}: not decimal; write the number in full")
        return super().construct_object(node, deep)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        if twice := [key for key in keys if isinstance(key, str) and keys.count(key) > 1]:
            raise yaml.constructor.ConstructorError(problem=f"key {twice[0]} is given twice")
        return super().construct_mapping(node, deep)


# ---------------------------------------------------------------- writing


def write_bytes(path: Path, content: bytes) -> None:
    """Replace ``path`` atomically, creating its folder."""
    partial = path.with_name(f".{path.name}.{os.getpid()}{_PARTIAL}")
    with _intact(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(content)
            flush_to_disk(partial)
            os.replace(partial, path)
        except OSError:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise


@contextmanager
def _intact(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SrpoError(f"{path}: cannot be written ({error.strerror}); what was there before is intact") from error


def flush_to_disk(path: Path) -> None:
    """Wait until a file or folder is on disk, so that it survives a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically; NaN is refused because JSON has none."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


# ---------------------------------------------------------------- event logs


def append_event(path: Path, event: dict[str, Any]) -> None:
    """Append one JSON line and flush it to the operating system. Who begins to write has read and replaced the log."""
    with _intact(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as log:
            log.write((json.dumps(event, allow_nan=False) + "\n").encode())


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the complete events of an append-only log; stop at a line that a kill cut off."""
    if not path.exists():
        return
    with path.open("rb") as log:
        for number, line in enumerate(log, 1):
            if not line.endswith(b"\n"):
                return
            yield _json_object(line, f"{path}, line {number}", path.name)


def write_events(path: Path, events: Iterable[dict[str, Any]]) -> None:
    """Replace a log, atomically."""
    write_text(path, "".join(json.dumps(event, allow_nan=False) + "\n" for event in events))


def rewind(path: Path, step: int) -> list[dict[str, Any]]:
    """Truncate a log at a checkpoint's step, and return the remaining events."""
    events = [event for event in read_events(path) if event["step"] <= step]
    write_events(path, events)
    return events


def read_last_events(path: Path, size: int = 16384) -> list[dict[str, Any]]:
    """The complete events at the end of an append-only log, at least one if there is one."""
    with path.open("rb") as log:
        start = max(0, log.seek(0, os.SEEK_END) - size)
        log.seek(start)
        lines = log.read().split(b"\n")[1 if start else 0 : -1]  # not those that begin before, or that a kill cut off
    if start and not lines:
        return read_last_events(path, 2 * size)
    return [_json_object(line, f"{path}, one of the last lines", path.name) for line in lines]


# ---------------------------------------------------------------- others


@contextmanager
def exclusive_access(folder: Path, patience: float = 60.0) -> Iterator[None]:
    """Prevent a second process from writing into ``folder``. If the process is killed, its lock is released.

    Partial files of :func:`write_bytes` that a killed process left are deleted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=patience):
            for abandoned in folder.glob(f".*{_PARTIAL}"):
                abandoned.unlink()
            yield
    except Timeout:
        raise SrpoError(f"{folder}: another process is writing here; wait for it or end it") from None
