"""Python imports this at every start while the folder is on PYTHONPATH: the server's children and Ray's workers too."""

import sglang_on_cpu

sglang_on_cpu.install()
