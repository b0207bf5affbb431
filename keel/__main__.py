"""Where `keel` and its services start. Python leaves with 1 on an uncaught exception, which
`keel diff` uses for "differs" and `status --check` for "degraded": every bug becomes 70 here."""

from __future__ import annotations

import gc
import importlib
import sys

from keel import VERSION

TYPE_CHECKING = False  # typing itself costs as much as all the rest of this module
if TYPE_CHECKING:
    from typing import NoReturn

INTERNAL = 70


def entry() -> NoReturn:
    """The console script. The version alone needs no parser: building it takes five times as long
    as Python's own start. Nor is garbage sought: a command ends before there is any, and the
    search would cost a twentieth of what the imports cost."""
    gc.disable()
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"keel {VERSION}\n")
        sys.exit(0)
    guarded("keel.cli.main")


def guarded(module: str) -> NoReturn:
    """Leave with what the module's `run()` returns. A bug, also one at its import, is reported
    without its traceback, unless -v asks for it."""
    try:
        status = importlib.import_module(module).run()
        sys.stdout.flush()
    except Exception as error:  # noqa: BLE001  # one of the three places: the outermost guard
        status = _report(error)
    sys.exit(status)


def _report(error: Exception) -> int:
    """Without -v only type and place: a message might quote a secret."""
    import traceback

    if {"-v", "--verbose"} & set(sys.argv):
        traceback.print_exception(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    sys.stderr.write(
        f"keel: error: a bug in keel: {type(error).__name__} at {last.filename}:{last.lineno}\n"
        "keel: hint: report it with the output of the same command and -v\n"
    )
    return INTERNAL


if __name__ == "__main__":
    entry()
