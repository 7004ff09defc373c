"""Uploads a checkpoint to a repository on the Hugging Face hub, only by an explicit command."""

from pathlib import Path

from srpo.errors import SrpoError
from srpo.publish.model_card import CARD


def push(weights: Path, repository: str, public: bool = False) -> str:
    """Upload the folder of a checkpoint's weights and its model card.

    Args:
        weights: ``checkpoints/step<n>/huggingface``.
        repository: ``owner/name`` on the hub; made if it does not exist.
        public: whether a repository that is made here is public.

    Returns:
        The address of the commit.

    Raises:
        SrpoError: if there is no card, or the hub refuses or cannot be reached.
    """
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise SrpoError(f"--to {repository}: give OWNER/NAME")
    if not (weights / CARD).is_file():
        raise SrpoError(f"{weights / CARD}: missing; srpo evaluate writes it")

    from huggingface_hub import HfApi

    hub = HfApi()
    try:
        hub.create_repo(repository, private=not public, exist_ok=True)
        commit = hub.upload_folder(
            repo_id=repository, folder_path=weights, commit_message=f"{weights.parent.name} by srpo push"
        )
    except Exception as error:  # its errors have no common base
        reason = " ".join(str(error).split())[:300]
        raise SrpoError(f"{repository}: {reason}; `hf auth login` stores a token that may write") from None
    return str(commit)
