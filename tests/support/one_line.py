"""What a mistake of a user says."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from srpo.ground.errors import SrpoError


@contextmanager
def refused(*words: str) -> Iterator[None]:
    """What is done here is refused, with one line that has all these words."""
    with pytest.raises(SrpoError) as caught:
        yield
    said = str(caught.value)
    assert "\n" not in said
    assert [word for word in words if word not in said] == [], said
