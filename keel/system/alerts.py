"""The monitor's channels: a webhook, the machine's mail, a command (E15).

Owns how one message leaves; what is said and when is keel.mesh.alerts'. Each call ends within its
time or is AlertFailed; nothing of a URL or an argv goes into an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from email.message import EmailMessage

from keel.errors import AlertFailed, DeadlinePassed, ProcFailed
from keel.ports import Proc

SENDMAIL = "/usr/sbin/sendmail"
"""Every mail server of Debian's brings it, those without a port of their own as well."""


class Messengers:
    """keel.ports.AlertsOut."""

    def __init__(self, proc: Proc, *, sendmail: str = SENDMAIL) -> None:
        self._proc = proc
        self._sendmail = sendmail

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
        self._run([self._sendmail, "-i", "--", to], message.as_bytes(), timeout_seconds)

    def command(self, argv: Sequence[str], document: bytes, *, timeout_seconds: float) -> None:
        self._run(argv, document, timeout_seconds)

    def _run(self, argv: Sequence[str], stdin: bytes, timeout_seconds: float) -> None:
        try:
            self._proc.run(argv, stdin=stdin, timeout_seconds=timeout_seconds)
        except ProcFailed as error:
            raise AlertFailed(f"{argv[0]} ended with status {error.returncode}") from error
        except DeadlinePassed as error:
            raise AlertFailed(f"{argv[0]} did not end in {timeout_seconds:.0f} s") from error
