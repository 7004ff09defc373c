"""Statistics: from arrays to estimates with intervals. They import numpy and scipy, and nothing of this repository."""
