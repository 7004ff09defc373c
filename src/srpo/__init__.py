"""Sample-Routed Policy Optimization (arXiv 2604.02288) as a reproducible workflow."""

__version__ = "0.2.0"
