"""Which device verl computes on, decided when ``srpo.policy`` is imported."""

import os
import subprocess
import sys

import pytest

PRINT_DEVICE = "import srpo.policy; from verl.utils.device import get_device_name; print('device', get_device_name())"


@pytest.mark.parametrize(("inherited", "device"), [(None, "cpu"), ("nvidia", "cuda")])
def test_a_hidden_gpu_is_not_taken_unless_the_parent_said_so(inherited, device, tmp_path):
    """There is an nvidia-smi, but torch sees no GPU: a CPU build, a job without GPUs, or a helper in a cluster."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexit 0\n")
    tool.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VERL_")}
    environment |= {"PATH": f"{tmp_path}:{environment['PATH']}", "CUDA_VISIBLE_DEVICES": ""}
    if inherited:
        environment["VERL_PLATFORM"] = inherited
    process = subprocess.run([sys.executable, "-c", PRINT_DEVICE], env=environment, capture_output=True, text=True)
    assert f"device {device}\n" in process.stdout, process.stderr
