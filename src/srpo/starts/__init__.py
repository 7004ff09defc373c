"""What a run starts from: base models and splits of questions."""

from srpo.starts.base_models import build_model, store_model

__all__ = ["build_model", "store_model"]
