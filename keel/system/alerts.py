"""The monitor's channels: a webhook, the machine's mail, a command (E15).

Owns how one message leaves; what is said and when is keel.mesh.alerts'. Each call ends within its
time or is AlertFailed; nothing of a URL or an argv goes into an error.

(M1) Programs of others run in units of their own, outside keel's sandbox: a mail server becomes
     another user, looks at the interfaces and writes to mailboxes, and a pager does who knows what.
(M2) What sendmail leaves running goes on: some servers deliver after it has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from email.message import EmailMessage

from keel.errors import AlertFailed, DeadlinePassed, ProcFailed
from keel.ports import Proc

SENDMAIL = "/usr/sbin/sendmail"
"""Every mail server of Debian's brings it, those without a port of their own as well."""


_GRACE_SECONDS = 5.0
"""After which systemd ends a program that keel waits for no longer."""

Launcher = Callable[[float, bool], Sequence[str]]
"""(seconds, whether what it leaves behind goes on) -> what stands before a program's argv."""


def unit_of_its_own(seconds: float, goes_on: bool) -> Sequence[str]:
    """Without a description the argv would stand in the journal."""
    return (
        *("systemd-run", "--quiet", "--collect", "--pipe", "--wait", "--service-type=exec"),
        "--description=keel: tell a channel of the monitor",
        f"--property=RuntimeMaxSec={seconds + _GRACE_SECONDS:.0f}",
        *(("--property=KillMode=process",) if goes_on else ()),
        "--",
    )


class Messengers:
    """keel.ports.AlertsOut."""

    def __init__(
        self, proc: Proc, *, sendmail: str = SENDMAIL, launcher: Launcher = unit_of_its_own
    ) -> None:
        self._proc = proc
        self._sendmail = sendmail
        self._launcher = launcher

    def webhook(self, url: str, document: bytes, *, timeout_seconds: float) -> None:
        import requests  # costs more than most commands take

        session = requests.Session()
        session.trust_env = False
        try:
            answer = session.post(
                url,
                data=document,
                headers={"Content-Type": "application/json"},
                timeout=timeout_seconds / 2,
                allow_redirects=False,
                stream=True,
            )
        except requests.RequestException as error:
            raise AlertFailed(f"no answer: {type(error).__name__}") from error
        finally:
            session.close()
        if not answer.ok or answer.is_redirect:
            raise AlertFailed(f"it answered {answer.status_code}")

    def mail(self, to: str, subject: str, text: str, *, timeout_seconds: float) -> None:
        message = EmailMessage()
        message["To"] = to
        message["Subject"] = subject
        message.set_content(text)
        argv = [self._sendmail, "-i", "--", to]
        self._run(argv, message.as_bytes(), timeout_seconds, goes_on=True)

    def command(self, argv: Sequence[str], document: bytes, *, timeout_seconds: float) -> None:
        self._run(argv, document, timeout_seconds, goes_on=False)

    def _run(
        self, argv: Sequence[str], stdin: bytes, timeout_seconds: float, *, goes_on: bool
    ) -> None:
        launched = [*self._launcher(timeout_seconds, goes_on), *argv]
        try:
            self._proc.run(launched, stdin=stdin, timeout_seconds=timeout_seconds)
        except ProcFailed as error:
            raise AlertFailed(f"{argv[0]} ended with status {error.returncode}") from error
        except DeadlinePassed as error:
            raise AlertFailed(f"{argv[0]} did not end in {timeout_seconds:.0f} s") from error
