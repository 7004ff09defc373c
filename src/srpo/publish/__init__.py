"""What others get: an experiment's numbers as files, and an audit that trains runs of them again."""
