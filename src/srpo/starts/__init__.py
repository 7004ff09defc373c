"""What a run starts from: splits of questions and base models."""

from srpo.starts.base_models import build_model, store_model

__all__ = ["build_model", "store_model"]
