"""Where `keel` and its services start. Python leaves with 1 on an uncaught exception, which
`keel diff` uses for "differs" and `status --check` for "degraded": every bug becomes 70 here."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal itself loads enum: as much as all of this
import gc
import importlib
import os
import sys

from keel import VERSION

TYPE_CHECKING = False  # typing itself costs as much as all the rest of this module
if TYPE_CHECKING:
    from typing import NoReturn

INTERNAL = 70
INCOMPLETE = 4
INTERRUPTED = 128 + 2


def entry() -> NoReturn:
    """The console script. The version alone needs no parser: building it takes five times as long
    as Python's own start. Nor is garbage sought: a command ends before there is any, and the
    search would cost a twentieth of what the imports cost."""
    _swap_interrupt(_signal.default_int_handler, _signal.SIG_DFL)
    gc.disable()
    _whole_streams()
    if sys.argv[1:] == ["--version"]:
        _leave(_written(f"keel {VERSION}\n"))
    guarded("keel.cli.main")


def guarded(module: str) -> NoReturn:
    """Leave with what the module's `run()` returns. A bug, also one at its import, is reported
    without its traceback, unless -v asks for it."""
    try:
        run = importlib.import_module(module).run
        _swap_interrupt(_signal.SIG_DFL, _signal.default_int_handler)
        status = run()
    except KeyboardInterrupt:  # keel.cli.main says more, where it can
        _remark("keel: error: interrupted\nkeel: hint: run it again\n")
        status = INTERRUPTED
    except Exception as error:  # noqa: BLE001  # one of the three places: the outermost guard
        status = _report(error)
    _leave(_written("") or status)


def _swap_interrupt(before: object, after: object) -> None:
    """While keel is loaded an interrupt ends it as it would any program: Python would print where
    it stood, or lose it in a callback of an import. Whoever is not to be interrupted stays so."""
    if _signal.getsignal(_signal.SIGINT) == before:
        _signal.signal(_signal.SIGINT, after)


def _written(text: str) -> int:
    """What is left to be written is; the status when nothing takes it."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 128 + 13
        _say_lost(os.strerror(error.errno or 0).lower())
        return INCOMPLETE
    return 0


def _whole_streams() -> None:
    """Who started this may have closed what it should not: remarks then go nowhere, but a command
    whose answer nobody takes does not begin. What is not text, or not of the terminal's alphabet,
    is no bug of keel's."""
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for name, number, mode in (("stdin", 0, "r"), ("stderr", 2, "w")):
        if name in closed:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
            setattr(sys, name, open(number, mode))  # noqa: SIM115  # open to the end
    if "stdout" in closed:
        _say_lost("it is closed")
        _leave(INCOMPLETE)
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace")):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=errors)


def _say_lost(why: str) -> None:
    _remark(
        f"keel: error: standard output takes nothing: {why}\n"
        "keel: hint: run the same command again with an output that works\n"
    )


def _remark(text: str) -> None:
    """One that nobody takes changes nothing."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _leave(status: int) -> NoReturn:
    _remark("")  # what an earlier one left would be tried again at the end, and be 120
    sys.exit(status)


def _report(error: Exception) -> int:
    """Without -v only type and place: a message might quote a secret."""
    import traceback

    if {"-v", "--verbose"} & set(sys.argv):
        traceback.print_exception(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    _remark(
        f"keel: error: a bug in keel: {type(error).__name__} at {last.filename}:{last.lineno}\n"
        "keel: hint: report it with the output of the same command and -v\n"
    )
    return INTERNAL


if __name__ == "__main__":
    entry()
