"""A small checkpoint and what is in a run's folder of them."""

from pathlib import Path

import torch

from srpo.training import checkpoints


def save(folder: Path, step: int) -> None:
    def write(path: Path) -> None:
        (path / "huggingface").mkdir()
        (path / "huggingface" / "model.safetensors").write_text(f"weights {step}")
        torch.save(torch.arange(3), path / "optimizer.pt")

    checkpoints.save(folder, step, {"step": step}, write)


def content(folder: Path) -> dict[str, list[str]]:
    return {p.name: sorted(f.name for f in p.iterdir()) for p in sorted((folder / "checkpoints").iterdir())}


WHOLE = ["huggingface", "optimizer.pt", "sizes.json", "state.json"]
