"""What the demo prints; what it shows is the lab's."""

import subprocess
from collections.abc import Sequence
from typing import cast

import pytest

from netns import demo
from netns.lab import Lab
from netns.topology import names

(A,) = names(1)


class Here:
    """A lab whose appliances are this machine."""

    def exec(
        self, name: str, argv: Sequence[str], *, input: str = ""
    ) -> subprocess.CompletedProcess[str]:
        del name
        return subprocess.run(
            argv, input=input, timeout=60, capture_output=True, text=True, check=True
        )


def test_what_a_command_says_is_shown_in_the_order_in_which_it_said_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = "echo asking >&2; cat; echo a hint >&2"
    demo.show(cast(Lab, Here()), A, command, "joined\n")
    assert capsys.readouterr().out == f"a# {command}\nasking\njoined\na hint\n"
