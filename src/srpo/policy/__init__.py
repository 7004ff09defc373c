"""Everything that touches verl: subclasses of verl's worker, engine and checkpoints."""

import os
import warnings

import torch

from srpo.ground.imports import import_transformers_without_scipy

# verl selects its platform at import. By default it selects the GPU platform if there is an nvidia-smi, even if torch
# sees no GPU. The processes of a cluster inherit the choice: some of them have no GPU and must not choose again.
os.environ.setdefault("VERL_USE_EXTERNAL_MODULES", "srpo.policy.platform")
os.environ.setdefault("VERL_PLATFORM", "nvidia" if torch.cuda.is_available() else "cpu")

# SLURM names a job's GPUs for every vendor (gres.conf without AutoDetect), and verl refuses two names.
os.environ.pop("ROCR_VISIBLE_DEVICES", None)

os.environ.setdefault("VERL_LOGGING_LEVEL", "WARN")

# At import verl warns about engines that are not installed.
warnings.filterwarnings("ignore", message=".*engine is not available")

import_transformers_without_scipy()
