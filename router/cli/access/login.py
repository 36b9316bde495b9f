"""The options with which a client of the command line logs in."""

import functools
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from router.amqp.sasl.credentials import Credentials
from router.mesh.errors import RunError

Command = TypeVar("Command", bound=Callable[..., Any])

_FILE = click.Path(dir_okay=False, path_type=Path)
_OPTIONS = (
    click.option("--user", metavar="NAME", help="Log in as this user; needs --password-file."),
    click.option("--password-file", type=_FILE, help="File whose first line is the password."),
    click.option("--certificate", type=_FILE, help="Log in with this client certificate; needs --key and amqps."),
    click.option("--key", type=_FILE, help="Private key of the certificate."),
    click.option(
        "--ca", type=_FILE, help="CA that signed the certificates of the routers. Default: the CAs of the system."
    ),
)


def login_options(command: Command) -> Command:
    """Add the login options to a command, which gets one argument for them all: `credentials`."""

    @functools.wraps(command)
    def logged_in(
        user: str | None,
        password_file: Path | None,
        certificate: Path | None,
        key: Path | None,
        ca: Path | None,
        **others: Any,
    ) -> Any:
        if (user is None) != (password_file is None):
            raise click.UsageError("--user and --password-file belong together")
        if (certificate is None) != (key is None):
            raise click.UsageError("--certificate and --key belong together")
        password = read_password(password_file) if password_file is not None else ""
        credentials = Credentials(user or "", password, ca, certificate, key)
        _check(credentials)
        return command(credentials=credentials, **others)

    for option in reversed(_OPTIONS):
        logged_in = option(logged_in)
    return logged_in  # type: ignore[return-value]


def _check(credentials: Credentials) -> None:
    """Read the files of the credentials. Raises RunError, or OSError with the name of the file."""
    files = [file for file in (credentials.ca, credentials.certificate, credentials.key) if file is not None]
    for file in files:
        # Each file is read here, because an error of TLS does not say which file it cannot read.
        file.read_bytes()
    try:
        if files:
            credentials.context()
    except (ssl.SSLError, ValueError) as error:
        reason = (getattr(error, "reason", None) or str(error)).lower().replace("_", " ")
        raise RunError(f"{', '.join(map(str, files))}: {reason}, expected certificates and their key, in PEM") from None


def read_password(path: Path) -> str:
    """The first line of a password file. Raises RunError if there is none, OSError if the file cannot be read."""
    try:
        password = path.read_text().partition("\n")[0].removesuffix("\r")
    except UnicodeDecodeError:
        password = ""
    if not password:
        raise RunError(f"{path}: expected a password in its first line")
    return password
