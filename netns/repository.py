"""Offers packages to a booted appliance, for what only a real installation shows."""

from __future__ import annotations

from netns import build, image
from netns.lab import Lab
from netns.topology import Name

DIRECTORY = "/srv/packages"
APT_SECONDS = 600
"""On a machine that others load as well, one installation was seen to take 150 s."""


def offer(lab: Lab, name: Name) -> None:
    """Make the checkout's packages, etcd and all dependencies installable with apt, offline.

    What the appliance has of Debian's own sources is replaced.
    """
    sources = {"debian": image.layer("appliance") / "repo"}
    built = build.packages()
    if built:
        sources["keel"] = built
    lines = []
    for part, directory in sources.items():
        lab.put_tree(name, directory, f"{DIRECTORY}/{part}")
        lines.append(f"deb [trusted=yes] file:{DIRECTORY}/{part} ./\n")
    lab.put(name, "/etc/apt/sources.list", "".join(lines))
    lab.exec(name, ["apt-get", "update", "-q"], timeout=APT_SECONDS)


def install(lab: Lab, name: Name, *packages: str) -> None:
    """Install them in the running appliance, maintainer scripts and all."""
    argv = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-q", "-y"]
    lab.exec(name, [*argv, "--no-install-recommends", *packages], timeout=APT_SECONDS)
