"""A model's weights as a checkpoint in Hugging Face format, which evaluation, users and the hub read."""

from copy import deepcopy
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, GenerationConfig, PretrainedConfig
from verl.utils.transformers_compat import drop_tied_target_keys


def write_weights(folder: Path, tensors: dict[str, Tensor], config: PretrainedConfig) -> None:
    """Write weights as they are, with the model's configuration, as verl's checkpoint manager does (``hf_model``).

    The configuration names the precision of the weights, and not the attention of the training, which transformers
    may not have: the checkpoint loads without options.

    Args:
        folder: may hold ``generation_config.json``, which is kept.
        tensors: by the model's parameter names, on the CPU; of tied ones the second is removed.
    """
    config = deepcopy(config)
    vars(config).pop("attn_implementation", None)  # verl sets it beside transformers' own, which is not saved
    dtype = next(iter(tensors.values())).dtype
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.to_empty(device="cpu")  # memory that is never touched
    if (folder / "generation_config.json").exists():
        model.generation_config = GenerationConfig.from_pretrained(folder)
    drop_tied_target_keys(tensors, model, config)
    model.save_pretrained(folder, state_dict=tensors)
