#!/usr/bin/env bash
# Snakemake runs this in the new environment, from the folder it was started in. The pip section of embedded.yaml cannot
# do it: Snakemake makes the environment from a copy of that file elsewhere, where no relative path leads back here.
set -euo pipefail
# Snakemake makes a new environment when this file changes, so it names the content of the lock.
sha256sum --check --quiet <<< "b4fe6cc0c7a6810123fb4755438f0c37c2d555ebd61252a791127eb8cfa8f357  envs/embedded.txt"
python -m pip install --quiet -r envs/embedded.txt
python -m pip install --quiet --no-deps --no-build-isolation -e .
