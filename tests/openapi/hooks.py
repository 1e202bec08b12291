"""Keeps generated cases within what JSON Schema cannot say, and keeps them short.

A valid case stays valid: where a rule of the service is narrower than the schema (bytes against
characters, settings, fields that depend on each other), the case is moved into the rule instead of
dropped. Cases that are wrong on purpose are left as they are, apart from how long they may take.

Every other valid case that needs a grant or a lease gets one that is really there, because a
number that was made up hits nothing, and the good answers would never be looked at.
"""

import itertools
import os

import requests
import schemathesis
from schemathesis import GenerationMode

# No request waits longer, or the run never ends.
WAIT_MS_MAX = 5
# Too short a time ends in a timeout or an unknown outcome, which is right and says nothing.
TIMEOUT_MS_MIN = 20_000
# The defaults of the settings.
TTL_MS = (500, 86_400_000)

NAME_BYTES = {"resource": 512, "client_id": 256, "request_id": 128, "domain": 512, "reason": 512}
METADATA_BYTES = 4096


def is_count(value):
    return isinstance(value, int) and not isinstance(value, bool)


def cut(text, bytes_max):
    """As many characters as fit."""
    return text.encode()[:bytes_max].decode(errors="ignore")


def fit_metadata(pairs):
    room = METADATA_BYTES
    kept = {}
    for name, value in pairs.items():
        room -= len(name.encode()) + len(value.encode())
        if room < 0:
            break
        kept[name] = value
    return kept


def fit_field(name, value):
    if isinstance(value, float) and value.is_integer():
        # The schema's integers include 4.0; the service wants 4.
        value = int(value)
    if isinstance(value, str) and name in NAME_BYTES:
        return cut(value, NAME_BYTES[name])
    if is_count(value) and name in ("ttl_ms", "claim_ms"):
        low = TTL_MS[0] if name == "ttl_ms" else 1
        return min(max(value, low), TTL_MS[1])
    if name == "metadata" and isinstance(value, dict):
        return fit_metadata(value)
    return fit(value)


def fit(value):
    if isinstance(value, dict):
        return {name: fit_field(name, inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [fit(inner) for inner in value]
    return value


def shorten_wait(body):
    wait = body.get("wait_ms")
    if is_count(wait) and WAIT_MS_MAX < wait <= 60_000:
        body["wait_ms"] = WAIT_MS_MAX


def lengthen_timeout(headers):
    timeout = str(headers.get("Leasehold-Timeout-Ms", ""))
    if timeout.isascii() and timeout.isdigit() and 0 < int(timeout) < TIMEOUT_MS_MIN:
        headers["Leasehold-Timeout-Ms"] = str(TIMEOUT_MS_MIN)


def fit_headers(headers, body):
    # Opaque as well.
    headers.pop("Last-Event-ID", None)
    if "If-Match" in headers:
        headers["If-Match"] = '"1"'
        headers.pop("If-None-Match", None)
    if "If-None-Match" in headers:
        headers["If-None-Match"] = "*"
    if "Idempotency-Key" in headers and isinstance(body, dict):
        # Both are the same thing, and must agree.
        body.pop("request_id", None)


def fit_query(path, query):
    if path.endswith("/why") and "request_id" not in query:
        # One of the two says who is asked about.
        query.setdefault("client_id", "somebody")
    # Opaque: only one from a page is valid.
    query.pop("cursor", None)
    if "token" in query:
        # A token has one client, so a filter for clients is a mistake beside it.
        query.pop("client_id", None)
    if not "1971" <= str(query.get("at", "2000"))[:4] <= "2025":
        # Only the past is known.
        query["at"] = "2020-02-29T23:59:59.999Z"
    for name, bytes_max in NAME_BYTES.items():
        if isinstance(query.get(name), str):
            query[name] = cut(query[name], bytes_max)


SERVICE = os.environ["LEASEHOLD_URL"]
session = requests.Session()
turns = itertools.count()

OF_A_GRANT = ("renew-lock", "release-lock", "force-release", "fence/check")


def made(path, body):
    """What the service gave, or nothing if it refused."""
    answer = session.post(f"{SERVICE}{path}", json=body, timeout=30)
    return answer.json() if answer.ok else None


def make_lease(client):
    lease = made("/v1/leases", {"client_id": client, "ttl_ms": 60_000})
    return lease and lease["lease_id"]


def make_real(case, turn):
    """Puts a live grant or lease, or a free lock, into the place of what was made up."""
    body = case.body if isinstance(case.body, dict) else {}
    client = body.get("client_id") or case.query.get("client_id") or "somebody"
    if case.path.endswith(("acquire-lock", *OF_A_GRANT)):
        body["resource"] = f"{cut(body['resource'], 400)}/{turn}"
    if case.path.endswith("acquire-lock"):
        body.pop("request_id", None)
        case.headers.pop("Idempotency-Key", None)
        if "lease_id" in body:
            body["lease_id"] = make_lease(client) or body["lease_id"]
    if case.path.endswith(OF_A_GRANT):
        asked = {"resource": body["resource"], "client_id": client, "ttl_ms": 60_000}
        grant = made("/v1/acquire-lock", asked)
        body["token"] = grant["token"] if grant else body["token"]
    if "id" in case.path_parameters:
        case.path_parameters["id"] = make_lease(client) or case.path_parameters["id"]


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta is not None and case.meta.generation.mode == GenerationMode.POSITIVE:
        if isinstance(case.body, (dict, list)):
            case.body = fit(case.body)
        fit_headers(case.headers, case.body)
        fit_query(case.path, case.query)
        turn = next(turns)
        if turn % 2:
            make_real(case, turn)
    lengthen_timeout(case.headers)
    if case.path.endswith("/watch"):
        # A stream that is not refused goes on until the client has enough; two filters are refused.
        case.query.setdefault("resource", "a")
        case.query.setdefault("prefix", "a")
    if isinstance(case.body, dict):
        shorten_wait(case.body)
