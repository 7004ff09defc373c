#!/usr/bin/env bash
# Snakemake runs this in the new environment, from the folder it was started in. paper.yaml cannot say the same: conda
# hands its pip section to pip as a requirements file, and there is no --no-deps in those; without it pip refuses the
# lock, whose overrides contradict sglang's pins. And Snakemake makes the environment from a copy of paper.yaml
# elsewhere, where no relative path leads back here.
set -euo pipefail
# Snakemake makes a new environment when this file changes, so it names the content of the lock.
sha256sum --check --quiet <<< "9893cd8d37573960f876b87d8104abc05c4edaa433b0d8f9039b10c2511a32af  envs/paper.txt"
python -m pip install --quiet --no-deps -r envs/paper.txt
python -m pip install --quiet --no-deps --no-build-isolation -e .
