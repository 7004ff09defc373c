"""The objective in other people's programs: a plain loop, TRL, verl's own trainer."""
