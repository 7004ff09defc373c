"""Settings of all tests."""

from hypothesis import settings

import srpo.policy  # noqa: F401  before any import of verl, which picks its platform then

# the same examples every time, however busy the machine
settings.register_profile("srpo", deadline=None, derandomize=True)
settings.load_profile("srpo")
