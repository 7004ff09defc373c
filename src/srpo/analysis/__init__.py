"""From the logs of an experiment to its tables, figures and report (docs/architecture.md)."""
