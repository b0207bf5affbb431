"""The verbs of `netns/lab`: parses, calls Lab, turns failures into `lab: error:` lines."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from netns import mesh
from netns.appliance import NotRunning
from netns.image import NoMirror, say
from netns.lab import ExecFailed, Lab, LabError
from netns.probe import BackendMissing
from netns.sandbox import SandboxFailed
from netns.topology import (
    MAX_MEMBERS,
    BadLink,
    Family,
    Mode,
    Name,
    Quality,
    names,
    parse_quality,
)

EXPECTED = (
    BackendMissing,
    BadLink,
    ExecFailed,
    LabError,
    NoMirror,
    NotRunning,
    SandboxFailed,
    TimeoutError,
    subprocess.TimeoutExpired,
    OSError,
)
EPILOG = """\
examples:
  netns/lab up --members 3 --link 125ms,12.5ms,1%     three appliances in one mesh, on a bad link
  netns/lab up --no-join                              only boot them
  netns/lab exec a -- keel mesh status
  netns/lab link b --cut                              b's uplink is gone; --heal brings it back
  netns/lab link b --set 300ms,50ms,5%                each direction to and from b
  netns/lab kill c; netns/lab start c                 a power cut, and power again
  netns/lab save formed; netns/lab load formed        all disks, kept and brought back
  netns/lab down                                      nothing is left

KEEL_LAB names the lab (several run side by side), KEEL_CACHE the cache of images,
KEEL_LINK=netem|userspace insists on a link. Appliances are called a, b, c, ...; their underlay is
198.51.100.1, .2, .3, ... and 2001:db8:64::1, ::2, ::3, ... The exit code of `exec` is the command's
own. An appliance that reboots itself stays off until `start`, as after a power cut.
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="netns/lab",
        description="Debian appliances on this machine, joined by bad links. Needs root.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")

    up = verbs.add_parser(
        "up", help="boot appliances with the checkout's packages and join them into a mesh"
    )
    up.add_argument("--members", type=members, default=3, metavar="N", help="how many (3)")
    up.add_argument(
        "--link",
        type=quality,
        default=Quality(),
        metavar="DELAYms,JITTERms,LOSS%",
        help="of each direction (perfect)",
    )
    up.add_argument("--no-join", action="store_true", help="boot only")
    up.add_argument(
        "--mode",
        type=Mode,
        choices=list(Mode),
        default=Mode.CLOUD_ADVANCED,
        help="installation.mode (cloud_advanced)",
    )
    up.add_argument(
        "--family",
        type=Family,
        choices=list(Family),
        default=Family.DUAL,
        help="addresses of the underlay (dual)",
    )
    up.add_argument("--seed", type=int, default=1, metavar="N", help="of the links' chance (1)")
    up.add_argument(
        "--image",
        choices=["appliance", "bare", "test"],
        default="appliance",
        help="bare: without keel and etcd and what they need",
    )

    run = verbs.add_parser("exec", help="run a command in an appliance, as root")
    _name(run)
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD...")

    link = verbs.add_parser("link", help="cut, heal or set all links of an appliance")
    _name(link)
    what = link.add_mutually_exclusive_group(required=True)
    what.add_argument("--cut", action="store_true", help="nothing passes")
    what.add_argument("--heal", action="store_true", help="undo a cut")
    what.add_argument(
        "--set", type=quality, metavar="DELAYms,JITTERms,LOSS%", help="of each direction"
    )

    _name(verbs.add_parser("kill", help="cut an appliance's power"))
    _name(verbs.add_parser("start", help="boot an appliance again, with the disk it had"))
    for verb, about in (
        ("save", "keep all disks, as a power cut of all at once would leave them"),
        ("load", "replace the lab by a saved one"),
    ):
        verbs.add_parser(verb, help=about).add_argument("snapshot", metavar="SNAP")
    verbs.add_parser("status", help="what runs, on what, and what the links carried")
    verbs.add_parser("down", help="remove the lab; nothing is left")
    vm = verbs.add_parser("vm", help="run a command in a guest with Debian's own kernel")
    vm.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD...")
    return top


def members(text: str) -> int:
    """How many appliances."""
    if not text.isdecimal() or not 1 <= int(text) <= MAX_MEMBERS:
        raise argparse.ArgumentTypeError(f"1 to {MAX_MEMBERS}")
    return int(text)


def quality(text: str) -> Quality:
    """One direction's quality."""
    try:
        return parse_quality(text)
    except BadLink as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def command_of(words: Sequence[str]) -> list[str]:
    """The command after `--`."""
    return list(words[1:] if words[:1] == ["--"] else words)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit code."""
    top = parser()
    options = top.parse_args(argv)
    if options.verb in ("exec", "vm") and not command_of(options.command):
        top.error(f"{options.verb}: no command; write it after --")
    if os.geteuid() != 0:
        return _fail("needs root\nhint: run it as root", 77)
    try:
        return _run(Lab(), options)
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except EXPECTED as error:
        return _fail(str(error), 3 if isinstance(error, LabError) else 4)


def _run(lab: Lab, options: argparse.Namespace) -> int:
    match options.verb:
        case "up":
            _up(lab, options)
        case "exec":
            command = lab.machine(Name(options.name)).command(command_of(options.command))
            os.execvp(command[0], command)
        case "link":
            _link(lab, options)
        case "kill":
            lab.kill(Name(options.name))
        case "start":
            lab.start(Name(options.name))
        case "save":
            lab.save(options.snapshot)
        case "load":
            lab.load(options.snapshot)
            say(lab.describe())
        case "status":
            _status(lab)
        case "down":
            lab.down()
        case _:
            hint = "appliances share this machine's kernel: netns/lab up"
            return _fail(f"there is no guest yet\nhint: {hint}", 3)
    return 0


def _link(lab: Lab, options: argparse.Namespace) -> None:
    name = Name(options.name)
    if options.set:
        lab.set_link(name, options.set)
    elif options.cut:
        lab.cut(name)
    else:
        lab.heal(name)


def _up(lab: Lab, options: argparse.Namespace) -> None:
    say(f"booting {options.members} appliances")
    lab.up(
        members=options.members,
        link=options.link,
        seed=options.seed,
        mode=options.mode,
        family=options.family,
        base=options.image,
    )
    say(lab.describe())
    if not options.no_join:
        mesh.join_all(lab, names(options.members))


def _status(lab: Lab) -> None:
    current = lab.state()
    sys.stdout.write(f"{lab.describe()}\n")
    for name in current.members:
        sys.stdout.write(f"{name}  {'on' if lab.running(name) else 'off'}\n")
    counters = lab.counters()
    for pair, link in sorted(current.qualities.items()):
        counts = counters.get(pair)
        carried = (
            f"carried {counts.carried}, lost {counts.lost}, cut {counts.cut}" if counts else ""
        )
        sys.stdout.write(f"{pair[0]} > {pair[1]}  {link}  {carried}\n")


def _name(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("name", metavar="NAME", help="a, b, c, ...")


def _fail(text: str, code: int) -> int:
    sys.stderr.write(f"lab: error: {text}\n")
    return code
