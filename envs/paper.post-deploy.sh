#!/usr/bin/env bash
# Snakemake runs this in the new environment, from the folder it was started in. paper.yaml cannot say the same: conda
# hands its pip section to pip as a requirements file, and there is no --no-deps in those; without it pip refuses the
# lock, whose overrides contradict sglang's pins. And Snakemake makes the environment from a copy of paper.yaml
# elsewhere, where no relative path leads back here.
set -euo pipefail
# Snakemake makes a new environment when this file changes, so it names the content of the lock.
sha256sum --check --quiet <<< "b2f2995db060e8024a5b378a8d99686090057225a33969a52ac478a076194aea  envs/paper.txt"
python -m pip install --quiet --no-deps -r envs/paper.txt
# flashinfer links what it compiles with CUDA's lib64, which conda calls lib
test -e "$CONDA_PREFIX/lib64" || ln -s lib "$CONDA_PREFIX/lib64"
python -m pip install --quiet --no-deps --no-build-isolation -e .
