"""Base models: tiny ones built and warm-started here, pinned hub revisions and local checkpoints."""

from srpo.models.build import build_model, store_model

__all__ = ["build_model", "store_model"]
