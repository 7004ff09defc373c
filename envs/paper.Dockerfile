# docker build -f envs/paper.Dockerfile -t srpo-paper .
# docker run --gpus all --ipc host -v "$PWD":/srpo srpo-paper snakemake ...
#
# Ubuntu 24.04 has Python 3.12; the base image has nvcc, because SGLang compiles kernels for the GPU it finds.
FROM nvidia/cuda:13.0.2-devel-ubuntu24.04

RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential git libnuma1 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*

ENV PATH=/opt/venv/bin:$PATH
COPY envs/paper.txt /tmp/paper.txt
RUN python3 -m venv /opt/venv \
    && python -m pip install --no-cache-dir --no-deps -r /tmp/paper.txt

# Editable, so that a working tree mounted over /srpo is the one that runs.
WORKDIR /srpo
COPY pyproject.toml setup.py README.md ./
COPY src src
RUN python -m pip install --no-cache-dir --no-deps --no-build-isolation -e .
