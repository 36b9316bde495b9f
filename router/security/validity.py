"""The period of validity of a certificate."""

from pathlib import Path

from attrs import frozen
from cryptography import x509


@frozen
class Validity:
    """A period of validity, in seconds since 1970."""

    path: Path
    begins: float
    ends: float


def validity_of(path: Path) -> Validity | None:
    """The period of validity of the first certificate in a file. None if the file has none, or cannot be read."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        return None
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return Validity(path, begins.timestamp(), ends.timestamp())
