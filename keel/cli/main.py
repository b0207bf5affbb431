"""The command line's outer shell: parse, build the host, run, print, and turn all into a status.

Data goes to stdout, everything else to stderr. An exception that is not keel's own passes through
to keel.__main__, whose guard makes it 70.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

from keel.cli import parser, render
from keel.cli.tree import TREE
from keel.cli.verb import Answer, Group, Report
from keel.errors import Exit, KeelError, NotRoot
from keel.ports import Host

SIGINT_STATUS = 128 + 2
SIGPIPE_STATUS = 128 + 13

MakeHost = Callable[[parser.Chosen, TextIO], Host]


def main(
    argv: Sequence[str],
    *,
    stdout: TextIO,
    stderr: TextIO,
    tree: Group = TREE,
    make_host: MakeHost,
) -> int:
    """The exit status of one command line (design section 6)."""
    wants_json = "--json" in argv
    try:
        chosen = parser.parse(tree, argv)
        host = make_host(chosen, stderr)
        return _run(chosen, host, stdout, stderr)
    except KeelError as error:
        if wants_json:
            print(render.json_text(render.error_document(error)), file=stdout)
        else:
            color = render.wants_color("auto", stderr, os.environ)
            print(render.error_text(error, color=color), file=stderr)
        return int(error.exit)
    except BrokenPipeError:
        _silence(stdout)
        return SIGPIPE_STATUS
    except KeyboardInterrupt:
        print("keel: error: interrupted", file=stderr)
        print("keel: hint: run it again; it goes on where it stopped", file=stderr)
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
                print(render.json_text(report.document), file=stdout, flush=True)
        elif report.text:
            print(render.harmless(report.text.rstrip("\n")), file=stdout, flush=True)
        for note in report.notes:
            print(render.harmless(note), file=stderr, flush=True)
        status = report.exit
    return int(status)


def _reports(answer: Answer) -> Iterator[Report]:
    if isinstance(answer, Report):
        yield answer
    else:
        yield from answer


def _silence(stream: TextIO) -> None:
    """Whoever read has gone; keep Python from complaining when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def run() -> int:
    """main() on this process's own arguments and streams."""
    return main(sys.argv[1:], stdout=sys.stdout, stderr=sys.stderr, make_host=_compose)


def _compose(chosen: parser.Chosen, stderr: TextIO) -> Host:
    from keel.cli.compose import compose

    return compose(verbose=chosen.verbose, stderr=stderr)
