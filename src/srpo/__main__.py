"""The program ``srpo``, or ``python -m srpo``: a package of an extra that is not installed is one line."""

import codecs
import locale
import os
import sys

from srpo.ground.imports import missing_extra


def main() -> int:
    """Run the command line.

    Returns:
        Its exit status (:func:`srpo.cli.main`), or 2 if a package is missing that an extra of srpo installs.
    """
    if codecs.lookup(locale.getencoding()).name != "utf-8" and not sys.flags.utf8_mode:
        os.environ["PYTHONUTF8"] = (
            "1"  # files and output are UTF-8 whatever the locale is, in processes that it starts too
        )
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    try:
        from srpo import cli

        return cli.main()
    except ModuleNotFoundError as error:
        if (message := missing_extra(error, next(iter(sys.argv[1:]), None))) is None:
            raise
        print(f"srpo: error: {message}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
