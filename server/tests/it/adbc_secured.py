"""TLS, certificates and grants by the clients that people use, against a server whose ports and whose folder of PEMs are given.
Every line asserts."""

import pathlib
import ssl
import sys
import urllib.error
import urllib.request
import warnings

import adbc_driver_flightsql.dbapi as flightsql
import adbc_driver_manager
from adbc_driver_flightsql import DatabaseOptions

warnings.simplefilter("ignore")
FLIGHT, HTTP, FOLDER = f"grpc+tls://localhost:{sys.argv[1]}", f"https://localhost:{sys.argv[2]}", pathlib.Path(sys.argv[3])


def flight(token, identity="client", authority="server", table="solver"):
    options = {
        DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {token}",
        DatabaseOptions.TLS_ROOT_CERTS.value: (FOLDER / f"{authority}.pem").read_text(),
    }
    if identity:
        options[DatabaseOptions.MTLS_CERT_CHAIN.value] = (FOLDER / f"{identity}.pem").read_text()
        options[DatabaseOptions.MTLS_PRIVATE_KEY.value] = (FOLDER / f"{identity}.key").read_text()
    with flightsql.connect(FLIGHT, db_kwargs=options) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table}")
        return cursor.fetchone()


def http(path, token, identity="client", authority="server"):
    context = ssl.create_default_context(cafile=str(FOLDER / f"{authority}.pem"))
    if identity:
        context.load_cert_chain(FOLDER / f"{identity}.pem", FOLDER / f"{identity}.key")
    body = b"SELECT count(*) AS n FROM solver" if path == "/sql" else None
    request = urllib.request.Request(HTTP + path, body, {"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, context=context, timeout=60) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def fails(expected, work):
    try:
        work()
    except expected:
        return
    raise AssertionError("it was to fail")


refused = adbc_driver_manager.Error
for token in ("looker", "boss", "tabled"):
    assert flight(token) == (3,)
for token in ("rollouts", "old", "nobody"):
    fails(refused, lambda: flight(token))
assert flight("looker", table="system.tables") == flight("tabled", table="system.tables") == (1,)
assert flight("looker", table="system.stats") != (0,)
fails(refused, lambda: flight("tabled", table="system.stats"))
fails(refused, lambda: flight("looker", identity=None))
fails(refused, lambda: flight("looker", identity="stranger"))
fails(refused, lambda: flight("looker", authority="stranger"))

assert [http(path, "looker") for path in ("/health", "/ready", "/metrics", "/sql")] == [200] * 4
assert [http(path, "rollouts") for path in ("/health", "/metrics", "/sql")] == [200, 403, 403]
assert [http(path, "tabled") for path in ("/health", "/metrics", "/sql")] == [200, 403, 200]
assert [http(path, "nobody") for path in ("/health", "/metrics", "/sql")] == [200, 401, 401]
assert [http(path, "looker", identity=None) for path in ("/health", "/metrics", "/sql")] == [200, 403, 403]
fails(OSError, lambda: http("/health", "looker", identity="stranger"))
fails(OSError, lambda: http("/health", "looker", authority="stranger"))
