"""Connections to PostgreSQL: addresses, and a pool whose connections have deadlines.

The client is psycopg 3 (the extra `postgres`).
"""

from __future__ import annotations

import re
import socket
import threading
import time
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from loom_core.errors import ConfigError, first_line
from loom_core.installation import how_to_install

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    import psycopg
    from pydantic import SecretStr

    from loom_core.errors import LoomError

    _Connection = psycopg.Connection[tuple[Any, ...]]

__all__ = [
    "POSTGRES_ADVICE",
    "POSTGRES_SCHEMES",
    "SECRET_VARIABLE",
    "WHERE_PASSWORDS_ARE",
    "PostgresLine",
    "PostgresPool",
    "check_address",
    "check_holds_no_password",
    "import_psycopg",
    "is_lost",
    "read_postgres_url",
]

POSTGRES_SCHEMES = ("postgresql://", "postgres://")
"""Beginnings of the address of a database."""

POSTGRES_ADVICE: Mapping[str, str] = {
    "25006": "Use the address of the primary; or free space on the server, if its disk is full.",
    "3D000": "Create the database, or check its name in the address.",
    "53100": "Free space on the server; what it has missed is written then.",
    "53300": "Raise max_connections or the role's limit on the server, or put PgBouncer before it.",
    "55P03": "Another session locks the table: wait for it, or end it.",
    "57014": "The server is too slow or overloaded: look at its load.",
    "57P03": "It is starting or stopping: wait a moment.",
}
"""Advice by SQLSTATE."""

_CONNECT = {
    "connect_timeout": "5",
    "keepalives_idle": "30",  # or a firewall forgets an idle connection, and the next statement hangs
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",  # ms; or what was sent while the network was away hangs for as long again
    "fallback_application_name": "loom",
}
_PASSWORDS = frozenset({"password", "sslpassword"})
# SQLSTATE by what the server says when it refuses a connection.
_CONNECT_FAILURES = {
    "25006": r"session is read-only|server is in hot standby",
    "3D000": r"database .* does not exist",
    "53300": r"too many clients|too many connections|connection slots are reserved",
    "57P03": r"the database system is ",
    "28000": r"authentication|no password supplied|pg_hba\.conf|role .* (does not exist|is not permitted)",
}


def import_psycopg(extra: str) -> None:
    """Import the client.

    Raises:
        ConfigError: it is not installed; the advice names the extra of Loom that brings it.
    """
    try:
        import_module("psycopg")
    except ModuleNotFoundError as error:
        raise ConfigError(
            "PostgreSQL needs the package psycopg, which is not installed.",
            advice=how_to_install(f"loom-mcp-core[{extra}]"),
        ) from error


def is_lost(error: psycopg.Error) -> bool:
    """Whether an error says that the connection has ended: by itself, with the server, or by a pooler."""
    import psycopg

    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(("08", "57P"))


def check_holds_no_password(url: str, *, secret: str) -> None:
    """Check the address of a database, before anyone sees it.

    Raises:
        ConfigError: it holds a password; `secret` says where that belongs.
    """
    with suppress(ValueError):  # no URL, which `read_postgres_url` says
        parts = urlsplit(url)
        if parts.password is not None or not dict(parse_qsl(parts.query)).keys().isdisjoint(_PASSWORDS):
            raise ConfigError(
                "The address of a PostgreSQL database must not hold a password.",
                advice=f"Put it elsewhere: {secret}.",
            )


def read_postgres_url(url: str, *, secret: str, example: str) -> tuple[dict[str, str], str]:
    """Return the parameters of libpq in a URL, and the schema that it names, or an empty text.

    Args:
        url: `postgresql://user@host:5432/database`; `?schema=` and parameters of libpq may follow.
        secret: where the password belongs, for people.
        example: a right setting, for people.

    Raises:
        ConfigError: it is not a URL of PostgreSQL, or it holds a password.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    check_holds_no_password(url, secret=secret)
    try:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        schema = query.pop("schema", "")
        if not url.startswith(POSTGRES_SCHEMES):
            raise ValueError("it does not begin with postgresql://")
        if not parts.hostname:
            raise ValueError("it names no host")
        found = conninfo_to_dict(parts._replace(query=urlencode(query, quote_via=quote)).geturl())
        parameters = {name: str(value) for name, value in found.items()}
        if not re.fullmatch(r"[\d,]*", parameters.get("port", "")):
            raise ValueError("its port is not a number")
    except (ValueError, psycopg.Error) as error:
        raise ConfigError(
            f"{url!r} is not the address of a PostgreSQL database: {first_line(error)}.",
            advice=f"Write it as {example}; ?schema= and parameters of libpq such as sslmode may follow.",
        ) from error
    return parameters, schema


def _servers(parameters: Mapping[str, str]) -> str:
    """Return host and port of each server that libpq may choose from."""
    hosts, ports = parameters["host"].split(","), parameters.get("port", "5432").split(",")
    if len(ports) == 1:  # which is that of all hosts
        ports *= len(hosts)
    return ",".join(f"{host}:{port or 5432}" for host, port in zip(hosts, ports, strict=False))


class _Lease:
    """Use of a connection up to a time.

    Attributes:
        due: the time, as `time.monotonic` counts.
        has_expired: whether the connection was cut as it was still in use then.
    """

    def __init__(self, wire: socket.socket, due: float) -> None:
        self._wire = wire
        self.due = due
        self.has_expired = False

    def cut(self) -> None:
        self.has_expired = True
        with suppress(OSError):
            self._wire.shutdown(socket.SHUT_RDWR)


class _Watchdog:
    """Cuts connections that are in use for too long. It is one thread, as starting one outlasts a query."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._leases: set[_Lease] = set()
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    def watch(self, lease: _Lease) -> None:
        with self._changed:
            self._leases.add(lease)
            if self._thread is None or not self._thread.is_alive():
                self._wakes_at = lease.due
                self._thread = threading.Thread(target=self._run, name="loom-postgres-watchdog", daemon=True)
                self._thread.start()
            elif lease.due < self._wakes_at:
                self._changed.notify()

    def release(self, lease: _Lease) -> None:
        with self._changed:
            self._leases.discard(lease)

    def _run(self) -> None:
        with self._changed:
            while self._leases:
                self._wakes_at = min(lease.due for lease in self._leases)
                self._changed.wait(self._wakes_at - time.monotonic())
                for lease in [each for each in self._leases if each.due <= time.monotonic()]:
                    self._leases.discard(lease)
                    lease.cut()
            self._thread = None


_watchdog = _Watchdog()


class PostgresLine(NamedTuple):
    """A connection, and its socket once more: libpq closes its own as soon as it breaks."""

    connection: _Connection
    wire: socket.socket

    def close(self) -> None:
        """Close both."""
        self.connection.close()
        self.wire.close()


class PostgresPool:
    """Pool of connections to one database; each use of one has a deadline.

    Args:
        parameters: of libpq, from `read_postgres_url`.
        secret: the password; without one, libpq looks for PGPASSWORD and the password file.
        size: maximum number of connections at a time.
        unavailable: makes the error for a server that cannot be asked now, from a reason and a SQLSTATE.

    Attributes:
        address: of the database, for people, without user and password.
    """

    def __init__(
        self,
        parameters: Mapping[str, str],
        *,
        secret: SecretStr | None,
        size: int,
        unavailable: Callable[[str, str], LoomError],
    ) -> None:
        password = {} if secret is None else {"password": secret.get_secret_value()}
        self._parameters = {**_CONNECT, **parameters, **password}
        self.address = f"{_servers(parameters)}/{parameters.get('dbname', '')}"
        self._unavailable = unavailable
        self._size = size
        self._idle: list[PostgresLine] = []
        self._free = threading.BoundedSemaphore(size)
        self._is_closed = False

    @contextmanager
    def reserve(self, seconds: float) -> Generator[None]:
        """Reserve the right to one connection in the block.

        Raises:
            LoomError: none is free within this time; as `unavailable` makes it.
        """
        if not self._free.acquire(timeout=seconds):
            raise self._unavailable(f"all {self._size} connections of this process are in use", "")
        try:
            yield
        finally:
            self._free.release()

    @contextmanager
    def lease(self, seconds: float) -> Generator[_Connection]:
        """Yield an idle or a new connection, which is closed if the block raises. `reserve` comes first.

        Args:
            seconds: after this time the connection is cut: psycopg waits for a server that hangs as long as
                that hangs.

        Raises:
            LoomError: the server cannot be asked, or took too long; as `unavailable` makes it.
        """
        import psycopg

        line = self._take() or self.connect()
        lease = _Lease(line.wire, time.monotonic() + seconds)
        is_usable = False
        _watchdog.watch(lease)
        try:
            yield line.connection
            is_usable = not self._is_closed and not lease.has_expired
        except psycopg.Error as error:
            if lease.has_expired:
                raise self._unavailable(f"it has not answered within {seconds:g} s", "57014") from error
            raise
        finally:
            _watchdog.release(lease)
            self._idle.append(line) if is_usable else line.close()

    def close(self) -> None:
        """Close the connections; one that is in use is closed after that."""
        self._is_closed = True
        self.close_idle()

    def close_idle(self) -> None:
        """Close the idle connections, as a server that was restarted has lost them all."""
        while (line := self._take()) is not None:
            line.close()

    def connect(self) -> PostgresLine:
        """Return a new connection outside of the pool, which the caller closes.

        Raises:
            LoomError: the server cannot be asked; as `unavailable` makes it.
        """
        import psycopg
        from psycopg.conninfo import make_conninfo

        try:
            connection = psycopg.connect(
                make_conninfo(**self._parameters),
                autocommit=True,
                prepare_threshold=None,  # PgBouncer hands each transaction to another session
            )
        except psycopg.Error as error:
            # libpq keeps the SQLSTATE of a failure to connect to itself.
            text = first_line(error)
            state = next((state for state, words in _CONNECT_FAILURES.items() if re.search(words, text)), "")
            raise self._unavailable(text, state) from error
        return PostgresLine(
            connection, socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        )

    def _take(self) -> PostgresLine | None:
        with suppress(IndexError):  # another thread may have taken the last one
            return self._idle.pop()
        return None


SECRET_VARIABLE = "LOOM_DATABASE_SECRET"
"""Variable, or entry of the keyring, with the password of Loom's database."""

WHERE_PASSWORDS_ARE = (
    f"{SECRET_VARIABLE} in the environment or the keyring, or a place of libpq (PGPASSWORD, .pgpass)"
)
"""Where a password belongs, for people."""


def check_address(url: str) -> None:
    """Check the address of Loom's database, as far as that is possible without its client.

    Raises:
        ConfigError: it is not a URL of PostgreSQL, or holds a password.
    """
    check_holds_no_password(url, secret=WHERE_PASSWORDS_ARE)
    if not url.startswith(POSTGRES_SCHEMES):
        raise ConfigError(
            f"{url!r} is not the address of a PostgreSQL database.",
            advice="Write it as postgresql://user@host:5432/database.",
        )
