"""Puts the repository's data folders into a built package; everything else is in ``pyproject.toml``.

An editable installation needs no copy: :mod:`srpo.repository` finds the folders in the checkout.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

FOLDERS = ("configs", "reports")  # as srpo.repository.DATA_FOLDERS, which has a test


class BuildWithData(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for name in FOLDERS:
            target = Path(self.build_lib) / "srpo" / name
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(Path(__file__).parent / name, target)


setup(cmdclass={"build_py": BuildWithData})
