"""The program ``srpo``, or ``python -m srpo``: a package of an extra that is not installed is one line."""

import sys

from srpo.imports import missing_extra


def main() -> int:
    """Run the command line.

    Returns:
        Its exit status (:func:`srpo.cli.main`), or 2 if a package is missing that an extra of srpo installs.
    """
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
