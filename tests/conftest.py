"""Settings of all tests."""

from hypothesis import settings

# the same examples every time, however busy the machine
settings.register_profile("srpo", deadline=None, derandomize=True)
settings.load_profile("srpo")
