"""Settings of all tests."""

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook
from paths import ROOT

# before anything of srpo.algorithm is imported; what configuration reads (branches, method) has no shapes
MODULES = [path.stem for path in (ROOT / "src/srpo/algorithm").glob("*.py")]
install_import_hook(
    [f"srpo.algorithm.{name}" for name in MODULES if name not in ("__init__", "branches", "method")],
    "beartype.beartype",
)


import srpo.policy  # noqa: E402, F401  before any import of verl, which picks its platform then

# the same examples every time, however busy the machine
settings.register_profile("srpo", deadline=None, derandomize=True)
settings.load_profile("srpo")


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    """The folder of a random tiny Qwen3 and its splits, from which :func:`start` makes a step of a run."""
    from one_step import build_base  # slow to import

    return build_base(tmp_path_factory.mktemp("base"))


@pytest.fixture
def start(base, tmp_path):
    from one_step import build_run

    return lambda name, folder="run", **options: build_run(base, tmp_path / folder, name, **options)
