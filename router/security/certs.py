"""A small CA, a certificate for each router, and certificates for users on demand: for trying out TLS.

The CA's key stays beside its certificate, so that more certificates can be made. Anyone who has the key can take any
identity. For a CA in production, keep the key elsewhere.
"""

import datetime
import ipaddress
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from router.mesh.config import Topology
from router.mesh.errors import FileError

Loaded = TypeVar("Loaded")

CA: Final = "ca"
DAYS: Final = 365
LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_DEMANDED: Final = {
    "subjectKeyIdentifier": x509.SubjectKeyIdentifier,
    "keyUsage": x509.KeyUsage,
    "basicConstraints": x509.BasicConstraints,
}
_SLACK: Final = datetime.timedelta(minutes=5)
"""Certificates are valid from this much time before now, because the clock of another host may be slow."""


class Authority:
    """A CA in a folder. If the folder has a CA already, that one is used."""

    def __init__(self, folder: Path, name: str) -> None:
        """Open the CA, or create it. Raises OSError. Raises FileError if the files there are not of a CA, or are of a
        CA that some peer would not accept."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        certificate, key = self.paths(CA)
        if certificate.exists():
            self._certificate = _loaded(certificate, x509.load_pem_x509_certificate)
            self._key = _loaded(key, _private_key)
            if why := _doubt(self._certificate, self._key):
                what = "expected a CA that can sign more certificates; to create a new one, remove it and its key"
                raise FileError(certificate, [f"{certificate}: {why}, {what}"])
        elif key.exists():
            raise FileError(key, [f"{key}: the certificate of this CA key is missing, expected {certificate}"])
        else:
            self._key = ec.generate_private_key(ec.SECP256R1())
            built = _builder(_named(name), _named(name), self._key, 10 * DAYS)
            built = built.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            built = built.add_extension(_usage(ca=True), critical=True)
            self._certificate = built.sign(self._key, hashes.SHA256())
            _write(key, _private(self._key), 0o600)
            _write(certificate, self._certificate.public_bytes(serialization.Encoding.PEM), 0o644)

    def paths(self, name: str) -> tuple[Path, Path]:
        """The paths of the certificate with this name, and of its key."""
        return self._folder / f"{name}.pem", self._folder / f"{name}.key"

    def issue(self, name: str, hosts: Iterable[str] = (), days: int = DAYS) -> tuple[Path, Path]:
        """Make a certificate with this common name for these hosts, and its key. If `days` is negative, the certificate
        has expired already."""
        key = ec.generate_private_key(ec.SECP256R1())
        built = _builder(_named(name), self._certificate.subject, key, days)
        built = built.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        built = built.add_extension(_usage(ca=False), critical=True)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        built = built.add_extension(issuer, critical=False)
        if alternatives := [_alternative(host) for host in dict.fromkeys(hosts)]:
            built = built.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        signed = built.sign(self._key, hashes.SHA256())
        certificate, private = self.paths(name)
        _write(private, _private(key), 0o600)
        _write(certificate, signed.public_bytes(serialization.Encoding.PEM), 0o644)
        return certificate, private


def issue_all(topology: Topology, folder: Path, users: Sequence[str]) -> list[Path]:
    """Make certificates for all routers of a topology, with the hosts where they listen, and for users."""
    authority = Authority(folder, f"{topology.mesh} CA")
    made = [authority.paths(CA)[0]]
    for name, router in topology.routers.items():
        found = (router.told, router.amqp, *([] if router.dialled is None else [router.dialled]))
        named = [address.host for address in found if not address.is_anywhere]
        made.append(authority.issue(name, [*named, *LOCAL])[0])
    return made + [authority.issue(user)[0] for user in users]


def _loaded(path: Path, load: Callable[[bytes], Loaded]) -> Loaded:
    try:
        return load(path.read_bytes())
    # A TypeError means that the file is encrypted. The library's error names neither the file nor the cause.
    except (ValueError, TypeError):
        raise FileError(path, [f"{path}: not created by oncemesh certs init; expected such a file, or none"]) from None


def _doubt(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> str:
    """The reason for which a peer may reject certificates of this CA; empty if there is none. Python 3.13 and later
    demand what RFC 5280, 4.2.1 demands."""
    found = {type(extension.value): extension for extension in certificate.extensions}
    for name, kind in _DEMANDED.items():
        if kind not in found:
            return f"it lacks {name}, which Python 3.13 needs"
    usage, constraints = found[x509.KeyUsage], found[x509.BasicConstraints]
    if not (usage.value.key_cert_sign and constraints.critical and constraints.value.ca):
        return "it is not the certificate of a CA"
    if certificate.public_key() != key.public_key():
        return "it does not match the key beside it"
    is_over = certificate.not_valid_after_utc < datetime.datetime.now(datetime.UTC)
    return "it has expired" if is_over else ""


def _private_key(content: bytes) -> ec.EllipticCurvePrivateKey:
    loaded = serialization.load_pem_private_key(content, None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise ValueError("the private key is not an elliptic-curve key, expected the key that oncemesh certs wrote")
    return loaded


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    ends = now + datetime.timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, ends) - _SLACK)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, ca: bool) -> x509.KeyUsage:
    """The key usage of RFC 5280, 4.2.1.3; Python 3.13 and later accept no CA without it."""
    return x509.KeyUsage(
        digital_signature=not ca,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def _write(path: Path, content: bytes, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
