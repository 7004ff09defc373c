#!/usr/bin/env bash
# Snakemake runs this in the new environment, from the folder it was started in. The pip section of embedded.yaml cannot
# do it: Snakemake makes the environment from a copy of that file elsewhere, where no relative path leads back here.
set -euo pipefail
# Snakemake makes a new environment when this file changes, so it names the content of the lock.
sha256sum --check --quiet <<< "df32bf44749908c31ea986ce9a23f7515d60d9e884d70de2420b52452833a187  envs/embedded.txt"
python -m pip install --quiet -r envs/embedded.txt
python -m pip install --quiet --no-deps --no-build-isolation -e .
