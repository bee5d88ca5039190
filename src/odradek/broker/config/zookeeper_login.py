"""The login to ZooKeeper, from a JAAS file."""

import os
import stat
from typing import Final

from odradek.broker.config.zookeeper import ZooKeeperSettings
from odradek.config.jaas import JaasError, LoginModule, parse_jaas
from odradek.errors import ConfigError
from odradek.security.digest_md5 import Login

__all__ = ["zookeeper_login"]

_KEY: Final = "java.security.auth.login.config"
_SECTION: Final = "Client"
_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"
_MAX_FILE_BYTES: Final = 1 << 20
_EXAMPLE: Final = f'{_MODULE} required username="…" password="…";'


def zookeeper_login(settings: ZooKeeperSettings) -> Login | None:
    """The user and password to log in with; None: the broker does not log in.

    Raises:
        ConfigError: The file cannot be used; no password is shown.
    """
    path = settings.login_config
    if path is None:
        return None
    section = settings.sasl_section or _SECTION
    try:
        modules = parse_jaas(_read(path)).get(section)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        if isinstance(error, UnicodeDecodeError):
            why = "expected UTF-8"  # Its text has a byte of the file, maybe of the password.
        raise ConfigError(_KEY, path, f"cannot be used: {why}") from None
    if not settings.has_login:
        if modules is not None:
            raise ConfigError(
                "zookeeper.sasl.client",
                False,
                f"{path} has a login, section {section}, that would not be used; remove one of"
                " them",
            )
        return None
    if modules is None:
        raise ConfigError(
            _KEY,
            path,
            f"has no section {section}; add {section} {{ {_EXAMPLE} }}; or set"
            " zookeeper.sasl.client=false",
        )
    return _login(path, section, modules)


def _login(path: str, section: str, modules: tuple[LoginModule, ...]) -> Login:
    if len(modules) != 1 or modules[0].name != _MODULE:
        found = ", ".join(module.name for module in modules) or "none"
        raise ConfigError(
            _KEY,
            path,
            f"section {section}: expected one login module, {_MODULE}, found {found}; only"
            " DIGEST-MD5 is spoken",
        )
    options = modules[0].options
    username, password = options.get("username", ""), options.get("password", "")
    if not username or not password:
        missing = "password" if username else "username"
        raise ConfigError(_KEY, path, f"section {section} has no {missing}; write it as {_EXAMPLE}")
    return Login(username, password)


def _read(path: str) -> str:
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise JaasError("not a regular file")
    if found.st_size > _MAX_FILE_BYTES:
        raise JaasError(f"{found.st_size} bytes, expected at most {_MAX_FILE_BYTES}")
    with open(path, encoding="utf-8") as file:
        return file.read()
