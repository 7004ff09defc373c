"""The only exception that users see."""


class SrpoError(Exception):
    """An error that the user can fix.

    The message is one line that names the key or file, the value found and what is allowed.
    The command line prints it without a traceback and exits with status 2.
    """
