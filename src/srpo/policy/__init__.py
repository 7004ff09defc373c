"""Everything that touches verl: its worker, engine and checkpoints, extended by subclassing and registration."""

import os
import warnings

# verl picks its platform at import; a GPU machine keeps verl's own choice.
os.environ.setdefault("VERL_USE_EXTERNAL_MODULES", "srpo.policy.platform")

os.environ.setdefault("VERL_LOGGING_LEVEL", "WARN")

# Engines that are not installed are announced as warnings at import.
warnings.filterwarnings("ignore", message=".*engine is not available")
