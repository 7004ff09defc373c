"""What an experiment says: its types, and how YAML files become one."""
