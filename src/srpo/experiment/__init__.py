"""The types of an experiment, and how YAML files become an experiment."""
