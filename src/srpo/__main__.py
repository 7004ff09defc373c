"""The program ``srpo``, or ``python -m srpo``."""

import codecs
import locale
import os
import sys


def main() -> int:
    """Run the command line and return its exit status (:func:`srpo.cli.main`)."""
    if codecs.lookup(locale.getencoding()).name != "utf-8" and not sys.flags.utf8_mode:
        # files and output are UTF-8 whatever the locale is, in processes that it starts too
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    from srpo import cli

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
