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

_NO_PROGRAM = (126, 127, 203)
"""By a shell's habit, and systemd's for what it could not execute."""
_NOT_FOUND = "Failed to find executable"
"""systemd-run's own word."""
MAIL_SERVER = "mail needs a mail server, such as dma: `apt install dma`"

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
    """keel.monitor.AlertsOut."""

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
        except (requests.RequestException, ValueError) as error:  # urllib3, of an odd host
            raise AlertFailed(_why(error, timeout_seconds)) from error
        finally:
            session.close()
        if not 200 <= answer.status_code < 300:
            raise AlertFailed(f"it answered {answer.status_code}: {_what_then(answer.status_code)}")

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
            if error.returncode in _NO_PROGRAM or _NOT_FOUND in error.stderr_tail:
                how = MAIL_SERVER if argv[0] == self._sendmail else "see the path and its rights"
                raise AlertFailed(f"{argv[0]} is missing or cannot be run: {how}") from error
            raise AlertFailed(
                f"{argv[0]} ended with status {error.returncode}: try it by hand"
            ) from error
        except DeadlinePassed as error:
            raise AlertFailed(f"{argv[0]} did not end in {timeout_seconds:.0f} s") from error


def _what_then(status: int) -> str:
    if status < 400:
        return "it sends elsewhere, which is not followed: give the URL that it names"
    return "see whether its URL is right" if status < 500 else "the fault is on its side"


def _why(error: Exception, timeout_seconds: float) -> str:
    """For who reads it: a library's class says nothing to them, and its text may quote the URL."""
    import requests

    match error:
        case requests.exceptions.SSLError():
            return "no TLS with it: this host does not trust its certificate, or it speaks none"
        case requests.Timeout():
            return f"no answer within {timeout_seconds / 2:.1f} s: see whether it runs"
        case requests.ConnectionError():
            return "it cannot be reached: see its name and port, and this host's firewall"
        case _:
            return f"its URL cannot be asked ({type(error).__name__}): see how it is written"
