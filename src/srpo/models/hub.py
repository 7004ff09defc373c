"""Pinned revisions of the Hugging Face hub: downloaded once, afterwards from the hub's cache."""

from collections.abc import Sequence
from pathlib import Path

from srpo.errors import SrpoError


def fetch_snapshot(repository: str, revision: str, where: str, patterns: Sequence[str]) -> Path:
    """Download a pinned revision, or find it in the cache.

    Args:
        where: how messages begin.
        patterns: the files to download.

    Returns:
        Its folder in the hub's cache.

    Raises:
        SrpoError: if it cannot be downloaded.
    """
    import httpx
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    wanted = {"repo_id": repository, "revision": revision, "allow_patterns": patterns}
    try:
        try:
            return Path(snapshot_download(**wanted))
        except (httpx.TransportError, OfflineModeIsEnabled):
            return Path(snapshot_download(**wanted, local_files_only=True))
    except LocalEntryNotFoundError as error:
        command = f"hf download {repository} --revision {revision}"
        raise SrpoError(
            f"{where}: the hub cannot be reached and the cache has no copy; on a machine with a network run: {command} "
            "(it fills the cache that HF_HOME names)"
        ) from error
    except RepositoryNotFoundError as error:
        raise SrpoError(f"{where}: no such repository, or no access to it; check the name or log in") from error
    except RevisionNotFoundError as error:
        raise SrpoError(f"{where}: the repository has no such commit; check the revision") from error
    except (HfHubHTTPError, OSError) as error:
        raise SrpoError(f"{where}: download failed ({' '.join(str(error).split())[:200]})") from error
