"""Everything that touches verl: its worker, engine and checkpoints, extended by subclassing and registration."""

import os
import warnings

import torch

# verl picks its platform at import. By itself it takes a GPU's as soon as there is an nvidia-smi, also where torch sees
# no GPU. A cluster's processes inherit the choice: some of them are given no GPU and must not choose again.
os.environ.setdefault("VERL_USE_EXTERNAL_MODULES", "srpo.policy.platform")
os.environ.setdefault("VERL_PLATFORM", "nvidia" if torch.cuda.is_available() else "cpu")

os.environ.setdefault("VERL_LOGGING_LEVEL", "WARN")

# Engines that are not installed are announced as warnings at import.
warnings.filterwarnings("ignore", message=".*engine is not available")
