"""The command line's outer shell: parse, build the host, run, print, and turn all into a status.

Data goes to stdout, everything else to stderr. An exception that is not keel's own passes through
to keel.__main__, whose guard makes it 70.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

from keel.cli import parser, render
from keel.cli.branch import branch
from keel.cli.verb import RESUME, Answer, Group, Report
from keel.errors import Exit, KeelError, NotRoot, OutputLost
from keel.ports import Host

SIGINT_STATUS = 128 + 2
SIGPIPE_STATUS = 128 + 13

MakeHost = Callable[[parser.Chosen, TextIO], Host]


def main(
    argv: Sequence[str],
    *,
    stdout: TextIO,
    stderr: TextIO,
    tree: Group | None = None,
    make_host: MakeHost,
) -> int:
    """The exit status of one command line (design section 6)."""
    chosen = None
    try:
        chosen = parser.parse(tree or branch(argv), argv)
        host = make_host(chosen, stderr)
        return _run(chosen, host, stdout, stderr)
    except KeelError as error:
        return _tell(error, argv, stdout, stderr)
    except BrokenPipeError:
        _silence(stdout)
        return SIGPIPE_STATUS
    except KeyboardInterrupt:
        resume = chosen.verb.resume if chosen else RESUME
        _note(stderr, f"keel: error: interrupted\nkeel: hint: {resume}")
        return SIGINT_STATUS
    except SystemExit as leaving:  # argparse, after --help and --version
        return leaving.code if isinstance(leaving.code, int) else int(Exit.INTERNAL)


def _run(chosen: parser.Chosen, host: Host, stdout: TextIO, stderr: TextIO) -> int:
    if chosen.verb.needs_root and not host.machine.is_root():
        raise NotRoot
    status = Exit.DONE
    for report in _reports(chosen.options.run(host)):
        if chosen.json:
            if report.document is not None:
                _data(stdout, render.json_text(report.document))
        elif report.text:
            _data(stdout, render.harmless(report.text.rstrip("\n")))
        for note in report.notes:
            _note(stderr, render.harmless(note))
        status = report.exit
    return int(status)


def _tell(error: KeelError, argv: Sequence[str], stdout: TextIO, stderr: TextIO) -> int:
    if "--json" in argv and not isinstance(error, OutputLost):
        try:
            _data(stdout, render.json_text(render.error_document(error)))
        except OutputLost:
            _tell(error, (), stdout, stderr)
    else:
        color = render.wants_color(parser.color_of(argv), stderr, os.environ)
        _note(stderr, render.error_text(error, color=color))
    return int(error.exit)


def _data(stdout: TextIO, text: str) -> None:
    """A line of what was asked for; OutputLost when nothing takes it, and BrokenPipeError when
    whoever read has gone."""
    try:
        print(text, file=stdout, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        _silence(stdout)
        raise OutputLost(error.errno or 0) from error


def _note(stderr: TextIO, text: str) -> None:
    """What keel does matters more than who reads its remarks."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=stderr, flush=True)


def _reports(answer: Answer) -> Iterator[Report]:
    if isinstance(answer, Report):
        yield answer
    else:
        yield from answer


def _silence(stream: TextIO) -> None:
    """Nobody takes what is left; keep Python from complaining when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def run() -> int:
    """main() on this process's own arguments and streams."""
    return main(sys.argv[1:], stdout=sys.stdout, stderr=sys.stderr, make_host=_compose)


def _compose(chosen: parser.Chosen, stderr: TextIO) -> Host:
    from keel.cli.compose import compose

    return compose(verbose=chosen.verbose, stderr=stderr, colour=chosen.color)
