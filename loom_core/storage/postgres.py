"""PostgreSQL databases: a pool of connections with deadlines, and a `SQLDatabase` in a schema of its own.

The client is psycopg 3 (the extra `postgres`). Nothing here needs a session of the server to last longer than
a transaction, so that PgBouncer may stand in between in its transaction mode.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import lru_cache, partial
from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from loom_core.errors import ConfigError, InvalidInputError, StoreError, first_line
from loom_core.installation import how_to_install
from loom_core.keys import find_key, read_password

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import psycopg
    from psycopg.abc import Params
    from pydantic import SecretStr

    from loom_core.errors import LoomError
    from loom_core.storage.sql import SQLConnection

    _Connection = psycopg.Connection[tuple[Any, ...]]

__all__ = [
    "POSTGRES_ADVICE",
    "POSTGRES_SCHEMES",
    "SECRET_VARIABLE",
    "WHERE_PASSWORDS_ARE",
    "PostgresDatabase",
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


class _Line(NamedTuple):
    """A connection, and its socket once more: libpq closes its own as soon as it breaks."""

    connection: _Connection
    wire: socket.socket

    def close(self) -> None:
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
        self._idle: list[_Line] = []
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

        line = self._take() or self._connect()
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

    def _take(self) -> _Line | None:
        with suppress(IndexError):  # another thread may have taken the last one
            return self._idle.pop()
        return None

    def _connect(self) -> _Line:
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
        return _Line(connection, socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM))


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


_OLDEST = 14
_SIZE = 8
_MIGRATION_SECONDS = 3600.0
_LOCK_SECONDS = 30.0  # for the turns of other writers
_IDLE_SECONDS = 20.0  # between two statements of a writer: one that is cut off must not keep its turn
_VERSION = "SELECT version FROM format"
_check: ContextVar[Callable[[SQLConnection], None] | None] = ContextVar("loom_postgres_check", default=None)
_WRITE, _READ = "BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# Of the column types that SQLite's scripts name, and of how they make keys.
_TYPES = (
    (r"INTEGER PRIMARY KEY AUTOINCREMENT", "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"),
    (r"INTEGER\b", "BIGINT"),
    (r"REAL\b", "DOUBLE PRECISION"),
    (r"BLOB\b", "BYTEA"),
    (r"TEXT\b", 'TEXT COLLATE "C"'),
    (r"\) WITHOUT ROWID", ")"),
)


class PostgresDatabase:
    """A schema of a PostgreSQL database, with the methods of `SQLDatabase`.

    Writing transactions of all processes take turns, as in SQLite: they hold an advisory lock of the schema.

    Args:
        url: see `read_postgres_url`; `?schema=` is the beginning of the schema's name, by default `loom`.
        name: the rest of it, such as `agent`.
        schema: one SQL script per version, as for `Database`.
        more: scripts for PostgreSQL alone, by the version after which they run; those of 0 run first. The
            triggers that SQLite's scripts make are left out.
        seconds: that a transaction may take.
        create: whether to make the schema if there is none, and to bring it to the last version.
        secret: the password; without one, LOOM_DATABASE_SECRET is used, from the environment or the keyring,
            else libpq looks for PGPASSWORD and the password file.

    Raises:
        ConfigError: the URL is wrong, or psycopg is not installed.
        StoreError: the server cannot be asked, is too old, refuses the role, or a newer Loom has written it.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        schema: Sequence[str],
        more: Mapping[int, Sequence[str]],
        seconds: float = 30.0,
        create: bool = True,
        secret: SecretStr | None = None,
    ) -> None:
        import_psycopg("postgres")
        parameters, prefix = read_postgres_url(
            url,
            secret=WHERE_PASSWORDS_ARE,
            example="postgresql://user@host:5432/database",
        )
        self._schema = f"{prefix or 'loom'}_{name}"
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", self._schema):
            raise ConfigError(
                f"{self._schema!r} cannot be the name of a schema.",
                advice="Use up to 50 lower-case letters, digits and _ after ?schema=, a letter first.",
            )
        self._scripts, self._more, self._seconds = schema, more, seconds
        secret = secret or read_password(SECRET_VARIABLE) or find_key(SECRET_VARIABLE)
        self._pool = PostgresPool(parameters, secret=secret, size=_SIZE, unavailable=self._error)
        self._local = threading.local()
        self._columns: dict[str, dict[str, str]] = {}
        if create:
            self._migrate()

    @property
    def address(self) -> str:
        """Address of the database, for people, without user and password."""
        return self._pool.address

    @property
    def schema(self) -> str:
        """Name of the schema."""
        return self._schema

    def read(self) -> AbstractContextManager[SQLConnection]:
        """See `SQLDatabase.read`: a snapshot."""
        return self.snapshot()

    @contextmanager
    def snapshot(self) -> Generator[SQLConnection]:
        """See `SQLDatabase.snapshot`. Inside a `write` of the same thread it is that transaction."""
        if (current := self._current()) is not None:
            yield current
            return
        with self._begin(_READ) as connection:
            yield connection

    @contextmanager
    def write(
        self, *, durable: bool = True, takes_turn: bool = True, seconds: float | None = None
    ) -> Generator[SQLConnection]:
        """See `SQLDatabase.write`; every commit survives a power failure of the server.

        Args:
            durable: without effect.
            takes_turn: whether to wait for the other writers; if not, it runs next to theirs.
            seconds: that the transaction may take, if not as long as every other.
        """
        if (current := self._current()) is not None:
            yield current
            return
        check = _check.get() if takes_turn else None
        with self._begin(_WRITE, takes_turn=takes_turn, is_migrated=True, seconds=seconds) as connection:
            if check is not None:
                check(connection)
            yield connection

    @contextmanager
    def checking(self, check: Callable[[SQLConnection], None]) -> Generator[None]:
        """Begin every writing transaction in the block, also in threads that it starts, with a check.

        Args:
            check: raises an error if the transaction may not go on.
        """
        token = _check.set(check)
        try:
            yield
        finally:
            _check.reset(token)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """See `SQLDatabase.rows`; one round trip."""
        return self._ask(sql, parameters).fetchall()

    def rows_in(self, sql: str, values: Sequence[Any], parameters: Sequence[Any] = ()) -> list[Any]:
        """See `SQLDatabase.rows_in`; one round trip."""
        return self.rows(sql.replace("IN ({})", "= ANY(?)"), [list(values), *parameters]) if values else []

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> Any:  # noqa: ANN401 - None, or a `SQLRow`
        """See `SQLDatabase.row`; one round trip."""
        return self._ask(sql, parameters).fetchone()

    def hold_connection(self) -> AbstractContextManager[object]:
        """See `SQLDatabase.hold_connection`: it is of no use here."""
        return nullcontext()

    def change_mark(self) -> object:
        """See `SQLDatabase.change_mark`: the transactions of the server that have ended."""
        with self.snapshot() as connection:
            return connection.execute("SELECT pg_current_snapshot()::text").fetchone()[0]

    def exists(self) -> bool:
        """Whether the schema exists and has tables of Loom."""
        return self.row("SELECT to_regclass(?)::text", (f"{self._schema}.format",))[0] is not None

    def drop(self) -> None:
        """Delete the schema with all that is in it."""
        with self._begin(_WRITE, takes_turn=True) as db:
            db.execute(f'DROP SCHEMA IF EXISTS "{self._schema}" CASCADE')

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    def _current(self) -> _Statements | None:
        return getattr(self._local, "current", None)

    @contextmanager
    def _begin(
        self,
        begin: str,
        *,
        takes_turn: bool = False,
        is_migrated: bool = False,
        seconds: float | None = None,
    ) -> Generator[SQLConnection]:
        """Run a transaction; a lost connection is replaced as long as nothing has been done."""
        import psycopg

        seconds = seconds or self._seconds
        with self._pool.reserve(seconds):
            for is_last in (False, True):
                has_begun = False
                try:
                    with self._pool.lease(seconds) as connection:
                        with connection.pipeline():  # one round trip
                            connection.execute(begin.encode())
                            self._set_up(connection, seconds, takes_turn=takes_turn)
                            version = connection.execute(_VERSION) if is_migrated else None
                        has_begun = True
                        self._local.current = _Statements(connection, self._columns)
                        try:
                            if version is not None:
                                self._check_version(version.fetchone())
                            yield self._local.current
                            connection.execute("COMMIT")
                        except BaseException:
                            if not connection.closed:
                                with suppress(psycopg.Error):
                                    connection.execute("ROLLBACK")
                            raise
                        finally:
                            self._local.current = None
                    return
                except psycopg.Error as error:
                    if has_begun or is_last or not is_lost(error):
                        raise self._translate(error) from error
                self._pool.close_idle()

    def _ask(self, sql: str, parameters: Sequence[Any]) -> psycopg.Cursor[_Row]:
        """Execute a query: in this thread's transaction, or else in one of its own, in one round trip."""
        import psycopg

        if (current := self._current()) is not None:
            return current.execute(sql, parameters)
        with self._pool.reserve(self._seconds):
            try:
                return self._ask_once(sql, parameters)
            except psycopg.Error as error:
                if not is_lost(error):
                    raise self._translate(error) from error
            self._pool.close_idle()
            try:
                return self._ask_once(sql, parameters)
            except psycopg.Error as error:
                raise self._translate(error) from error

    def _ask_once(self, sql: str, parameters: Sequence[Any]) -> psycopg.Cursor[_Row]:
        with self._pool.lease(self._seconds) as connection, connection.pipeline():
            # What is sent at once is one transaction.
            self._set_up(connection, self._seconds, takes_turn=False)
            return _Statements(connection, self._columns).execute(sql, parameters)

    def _set_up(self, connection: _Connection, seconds: float, *, takes_turn: bool) -> None:
        settings = {
            "search_path": self._schema,
            "statement_timeout": f"{seconds * 900:.0f}",  # earlier than ours, so that the server stops, too
            "lock_timeout": f"{min(_LOCK_SECONDS, seconds) * 1000:.0f}",
        }
        if takes_turn:
            settings["idle_in_transaction_session_timeout"] = f"{min(_IDLE_SECONDS, seconds) * 1000:.0f}"
        named = [text for setting in settings.items() for text in setting]
        set_all = "SELECT " + ", ".join(["set_config(%s, %s, true)"] * len(settings))
        connection.execute(set_all.encode(), named)
        if takes_turn:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [self._turn])

    @property
    def _turn(self) -> int:
        """The number of the advisory lock of this schema."""
        return int.from_bytes(sha256(f"loom:{self._schema}".encode()).digest()[:8], signed=True)

    def _migrate(self) -> None:
        with self._begin(_WRITE, takes_turn=True, seconds=_MIGRATION_SECONDS) as db:
            (number,) = db.execute("SELECT current_setting('server_version_num')::int").fetchone()
            if number < _OLDEST * 10_000:
                raise self._error(f"it is version {number // 10_000}, and {_OLDEST} is needed", "")
            # Roles may lack the right to make a schema that an administrator has made for them.
            if db.execute("SELECT to_regnamespace(?)::text", (self._schema,)).fetchone()[0] is None:
                db.execute(f'CREATE SCHEMA "{self._schema}"')
            db.execute("CREATE TABLE IF NOT EXISTS format (version BIGINT NOT NULL)")
            (version,) = db.execute(f"SELECT COALESCE(({_VERSION}), 0)").fetchone()
            known = len(self._scripts)
            if version > known:
                raise StoreError(
                    f"The schema {self._schema} at {self.address} was written by a newer Loom "
                    f"(format {version}, this one knows {known}).",
                    advice="Upgrade this installation; nothing was changed.",
                )
            for at in range(version, known):
                first = self._more.get(0, ()) if at == 0 else ()
                then = self._more.get(at + 1, ())
                for statement in _statements([*first, _translate_script(self._scripts[at]), *then]):
                    db.execute(statement)
            if version != known:
                db.execute("DELETE FROM format")
                db.execute("INSERT INTO format VALUES (?)", (known,))

    def _check_version(self, row: tuple[Any, ...] | None) -> None:
        if row is None or row[0] != len(self._scripts):
            raise StoreError(
                f"The schema {self._schema} at {self.address} was migrated by a newer Loom while it was open "
                "here.",
                advice="Restart this program with the newer version; nothing was changed.",
            )

    def _error(self, reason: str, state: str) -> LoomError:
        if state in {"3F000", "42P01"}:
            return StoreError(
                f"The schema {self._schema} at {self.address} is gone, or tables in it are.",
                advice="Another process may have deleted it; else restore it from a backup.",
            )
        if state[:2] in {"22", "23", "42"} and state != "42501":  # data, constraints, syntax
            return StoreError(
                f"PostgreSQL at {self.address} has refused a statement: {reason}.",
                advice="Run the command again with --debug for details; nothing was changed.",
            )
        if state in {"28000", "28P01"}:
            advice = f"Check user and password: {WHERE_PASSWORDS_ARE}."
        elif state == "42501":
            advice = (
                f"Let an administrator grant the role CREATE on the database, or make the schema "
                f"{self._schema} for it."
            )
        else:
            advice = POSTGRES_ADVICE.get(state, "Start it, or check its address.")
        return StoreError(
            f"PostgreSQL at {self.address} cannot be asked: {reason}.",
            advice=f"{advice} Everything acknowledged so far is safe.",
        )

    def _translate(self, error: psycopg.Error) -> LoomError:
        if "NUL (0x00)" in str(error) or error.sqlstate in {"22021", "22P05"}:
            return InvalidInputError(
                "A text has the character U+0000, which PostgreSQL cannot store.", advice="Leave it out."
            )
        return self._error(first_line(error), error.sqlstate or "")


def _statements(scripts: Sequence[str]) -> Iterator[str]:
    for script in scripts:
        yield from filter(str.strip, script.split(";\n"))


def _translate_script(script: str) -> str:
    for pattern, type_ in _TYPES:
        script = re.sub(pattern, type_, script)
    return ";\n".join(each for each in script.split(";\n") if "CREATE TRIGGER" not in each)


_POSTGRES_ALONE = re.compile(r"/\*postgres (.*?)\*/")
_HINT = re.compile(r" INDEXED BY \w+")
_NUMBERED = re.compile(r"\?(\d+)")
_INSERT = re.compile(r"INSERT INTO (\w+)(?: \(([^)]*)\))? VALUES \(([^)]*)\)([^?]*)", re.DOTALL)
_DELETE = re.compile(r"(DELETE FROM \w+ WHERE \w+ = )\?([^?]*)", re.DOTALL)
_PYTHON: Mapping[str, type] = {"double precision": float, "boolean": bool}


@lru_cache(maxsize=512)
def _translate_statement(sql: str) -> tuple[bytes, bool]:
    """Return a statement as psycopg expects it, and whether its parameters have names: their numbers."""
    sql = _POSTGRES_ALONE.sub(r"\1", _HINT.sub("", sql)).replace("%", "%%")
    named = _NUMBERED.sub(r"%(\1)s", sql)
    return named.replace("?", "%s").encode(), named != sql


class _Row:
    """A row as `SQLRow` has it."""

    __slots__ = ("_names", "_values")

    def __init__(self, names: Mapping[str, int], values: Sequence[Any]) -> None:
        self._names = names
        self._values = values

    def __getitem__(self, key: str | int) -> Any:  # noqa: ANN401 - of a column of any type
        return self._values[self._names[key] if isinstance(key, str) else key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def keys(self) -> Iterable[str]:
        return self._names.keys()


def _make_rows(cursor: psycopg.Cursor[Any]) -> Callable[[Sequence[Any]], _Row]:
    names = {column.name: at for at, column in enumerate(cursor.description or ())}
    return partial(_Row, names)


class _Statements:
    """A connection as `SQLConnection` has it.

    Args:
        connection: in a transaction.
        columns: types of columns by table, as far as they are known.
    """

    def __init__(self, connection: _Connection, columns: dict[str, dict[str, str]]) -> None:
        self._connection = connection
        self._columns = columns
        self.total_changes = 0

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> psycopg.Cursor[_Row]:
        cursor = self._connection.cursor(row_factory=_make_rows)
        statement, is_numbered = _translate_statement(sql)
        numbered = {str(n): value for n, value in enumerate(parameters, 1)} if is_numbered else None
        cursor.execute(statement, numbered or parameters)
        if not (cursor.statusmessage or "").startswith("SELECT"):
            self.total_changes += max(0, cursor.rowcount)
        return cursor

    def executemany(self, sql: str, parameters: Sequence[Sequence[Any]]) -> None:
        if not parameters:
            return
        if insert := _INSERT.fullmatch(sql):
            self._insert(insert, parameters)
        elif delete := _DELETE.fullmatch(sql):
            self.execute(f"{delete[1]}ANY(?){delete[2]}", [[key for (key,) in parameters]])
        else:
            cursor = self._connection.cursor()
            cursor.executemany(_translate_statement(sql)[0], cast("Sequence[Params]", parameters))
            self.total_changes += max(0, cursor.rowcount)

    def _insert(self, insert: re.Match[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows with one statement, whose parameters are columns: it takes a fifth of the time."""
        table, names, values, rest = insert.groups()
        types = self._types_of(table)
        targets = [name.strip(' "') for name in names.split(",")] if names else list(types)
        given = [value.strip() for value in values.split(",")]
        wanted = [types[name] for name, value in zip(targets, given, strict=True) if value == "?"]
        columns = [
            [None if value is None else convert(value) for value in column]
            if (convert := _PYTHON.get(type_))
            else list(column)
            for type_, column in zip(wanted, zip(*rows, strict=True), strict=True)
        ]
        marks = iter(range(len(wanted)))
        chosen = ", ".join(f"c{next(marks)}" if value == "?" else value for value in given)
        arrays = ", ".join(f"%b::{type_}[]" for type_ in wanted)
        aliases = ", ".join(f"c{n}" for n in range(len(wanted)))
        into = f"INSERT INTO {table}{f' ({names})' if names else ''}"
        cursor = self._connection.execute(
            f"{into} SELECT {chosen} FROM unnest({arrays}) AS r ({aliases}){rest}".encode(), columns
        )
        self.total_changes += cursor.rowcount

    def _types_of(self, table: str) -> dict[str, str]:
        """Return the types of a table's columns, in their order."""
        if table not in self._columns:
            found = self.execute(
                "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute "
                "WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
                (table,),
            )
            self._columns[table] = dict(map(tuple, found))
        return self._columns[table]
