#!/usr/bin/env bash
# Snakemake runs this in the new environment, from the folder it was started in. The pip section of report.yaml cannot
# do it: Snakemake makes the environment from a copy of that file elsewhere, where no relative path leads back here.
set -euo pipefail
# Snakemake makes a new environment when this file changes, so it names the content of the lock.
sha256sum --check --quiet <<< "d69f135e00b8e4b36d062991533dc7b7f3a9e7c5e6ab1780ecd657b58dcb2676  envs/report.txt"
python -m pip install --quiet --no-deps -r envs/report.txt
python -m pip install --quiet --no-deps --no-build-isolation -e .
