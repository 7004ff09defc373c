"""Makes tables, figures and the report from the logs of an experiment (docs/architecture.md)."""
