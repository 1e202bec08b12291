"""Drives the service through a client that a public generator made from the served document."""

import json
import os
import threading
import time
import uuid

import pytest

from leasehold_client import Client, models
from leasehold_client.api.health import livez, readyz
from leasehold_client.api.history import grants
from leasehold_client.api.leases import end_lease, keep_alive, keep_alive_many, leases, open_lease
from leasehold_client.api.leases import lease as lease_of
from leasehold_client.api.locks import (
    acquire_lock,
    acquire_lock_at_root,
    batch,
    cancel_wait,
    fence_check,
    lock,
    locks,
    release_lock,
    renew_lock,
)
from leasehold_client.api.operators import force_release

TTL_MS = 30_000
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def client():
    # An answer that the document does not describe is an error.
    with Client(
        base_url=os.environ["LEASEHOLD_URL"], raise_on_unexpected_status=True, timeout=90.0
    ) as client:
        yield client


@pytest.fixture
def resource():
    return f"orders/{uuid.uuid4()}"


def take(client, resource, who="w1", **more):
    asked = models.Acquire(resource=resource, client_id=who, ttl_ms=TTL_MS, **more)
    return acquire_lock.sync(client=client, body=asked)


def give_back(client, grant):
    asked = models.Release(resource=grant.resource, token=grant.token)
    return release_lock.sync(client=client, body=asked)


def state(client, resource):
    return lock.sync(client=client, resource=resource)


def until(holds):
    """Looks again until it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def test_a_lock_is_taken_kept_and_given_back(client, resource):
    answer = acquire_lock.sync_detailed(
        client=client,
        body=models.Acquire(resource=resource, client_id="w1", ttl_ms=TTL_MS),
    )
    grant = answer.parsed
    assert isinstance(grant, models.Grant)
    assert answer.headers["Fencing-Token"] == str(grant.token)
    assert answer.headers["Leasehold-Revision"]
    assert grant.mode == models.Mode.EXCLUSIVE and grant.granted_at.tzinfo is not None
    renewed = renew_lock.sync(
        client=client, body=models.Renew(resource=resource, token=grant.token)
    )
    assert isinstance(renewed, models.Renewed) and renewed.valid_for_ms > 0
    released = give_back(client, grant)
    assert released.released and not released.reason
    again = give_back(client, grant)
    assert not again.released and again.reason == models.NotReleased.ALREADY_RELEASED
    free = state(client, resource)
    assert free.state == models.LockState.FREE and free.last_token == grant.token


def test_a_lock_that_was_never_there_has_no_token(client, resource):
    assert state(client, resource).last_token is None


def test_tokens_grow_and_the_old_one_is_refused(client, resource):
    first = take(client, resource)
    give_back(client, first)
    second = take(client, resource)
    assert second.token > first.token

    def check(token):
        asked = models.FenceCheck(resource=resource, token=token)
        return fence_check.sync(client=client, body=asked)

    assert check(second.token).current
    old = check(first.token)
    assert not old.current and old.highest_token == second.token


def test_a_held_lock_is_a_problem_that_names_the_holder(client, resource):
    grant = take(client, resource)
    problem = take(client, resource, "w2")
    assert isinstance(problem, models.Problem)
    assert problem.status == 409 and problem.code == models.Code.HELD
    assert problem.type_ == "urn:leasehold:problem:held"
    assert [holder.token for holder in problem.holders] == [grant.token]
    assert problem.holders_total == 1 and problem.trace_id


def test_a_grant_that_ended_is_a_problem_that_says_how(client, resource):
    grant = take(client, resource)
    give_back(client, grant)
    problem = renew_lock.sync(
        client=client, body=models.Renew(resource=resource, token=grant.token)
    )
    assert isinstance(problem, models.Problem)
    assert problem.code == models.Code.GRANT_ENDED and problem.how == "released"
    assert problem.ended_at is not None


def test_a_wrong_request_names_its_field(client, resource):
    asked = models.Acquire(resource=resource, client_id="w1", ttl_ms=1)
    problem = acquire_lock.sync(client=client, body=asked)
    assert isinstance(problem, models.Problem)
    assert problem.code == models.Code.INVALID_REQUEST and problem.field == "ttl_ms"
    # The models know no other fields, so this one goes past them.
    body = {"resource": resource, "token": 1, "tokken": 1}
    answer = client.get_httpx_client().post("/v1/renew-lock", json=body)
    problem = models.Problem.from_dict(answer.json())
    assert problem.status == 400 and problem.field == "tokken"


def test_a_waiter_gets_the_lock_when_the_holder_gives_it_back(client, resource):
    holder = take(client, resource)
    got = []
    waiter = threading.Thread(
        target=lambda: got.append(take(client, resource, "w2", wait_ms=60_000))
    )
    waiter.start()
    until(lambda: state(client, resource).queue_length == 1)
    waiting = state(client, resource).queue[0]
    assert waiting.client_id == "w2" and waiting.position == 1 and waiting.attached
    assert not got, "nobody gets what is held"
    give_back(client, holder)
    waiter.join(PATIENCE_S)
    assert isinstance(got[0], models.Grant) and got[0].token > holder.token


def test_a_wait_ends_by_time_or_by_wish(client, resource):
    take(client, resource)
    late = take(client, resource, "w2", wait_ms=20)
    assert late.code == models.Code.WAIT_TIMEOUT and late.position == 1
    got = []
    waiter = threading.Thread(
        target=lambda: got.append(
            take(client, resource, "w3", wait_ms=60_000, request_id="r-1")
        )
    )
    waiter.start()
    until(lambda: state(client, resource).queue_length == 1)
    asked = models.CancelWait(client_id="w3", request_id="r-1")
    assert cancel_wait.sync(client=client, body=asked).cancelled
    waiter.join(PATIENCE_S)
    assert isinstance(got[0], models.Problem)


def test_a_repeated_request_gets_the_same_grant(client, resource):
    first = take(client, resource, request_id="r-1")
    assert take(client, resource, request_id="r-1").token == first.token
    asked = models.Acquire(resource=resource, client_id="w1", ttl_ms=TTL_MS)
    by_header = acquire_lock.sync(client=client, body=asked, idempotency_key="r-1")
    assert by_header.token == first.token


def test_a_batch_has_an_outcome_for_each_operation(client, resource):
    other = f"{resource}/2"
    held = take(client, other, "w9")
    operations = [
        models.BatchAcquire(op="acquire", resource=resource, client_id="w1", ttl_ms=TTL_MS),
        models.BatchAcquire(op="acquire", resource=other, client_id="w1", ttl_ms=TTL_MS),
        models.BatchRenew(op="renew", resource=other, token=held.token),
        models.BatchRelease(op="release", resource=other, token=held.token),
    ]
    done = batch.sync(client=client, body=models.Batch(operations=operations)).results
    assert [result.status for result in done] == [200, 409, 200, 200]
    assert done[0].grant.token > held.token
    assert done[1].problem.code == models.Code.HELD
    assert done[2].renewed.valid_for_ms > 0 and done[3].released.released


def test_pages_lead_to_every_lock_once(client):
    prefix = f"pages/{uuid.uuid4()}/"
    names = [f"{prefix}{number}" for number in range(7)]
    for name in names:
        take(client, name, metadata=models.Metadata.from_dict({"build": "1492"}))
    seen, cursor = [], None
    while True:
        more = {"cursor": cursor} if cursor else {}
        page = locks.sync(
            client=client, prefix=prefix, limit=3, state=models.LocksState.HELD, **more
        )
        seen += [item.resource for item in page.items]
        cursor = page.next_cursor
        if not cursor:
            break
    assert seen == names
    holder = state(client, names[0]).holders[0]
    assert holder.metadata["build"] == "1492"


def test_a_lease_keeps_many_grants_and_ends_them(client, resource):
    opened = open_lease.sync(
        client=client, body=models.OpenLease(client_id="w1", ttl_ms=TTL_MS)
    )
    names = [f"{resource}/{number}" for number in range(3)]
    for name in names:
        asked = models.Acquire(resource=name, client_id="w1", lease_id=opened.lease_id)
        assert isinstance(acquire_lock_at_root.sync(client=client, body=asked), models.Grant)
    kept = keep_alive.sync(opened.lease_id, client=client, body=models.KeepAlive())
    assert kept.valid_for_ms > 0 and not kept.code
    unknown = "0" * 32
    many = models.KeepAliveMany(lease_ids=[opened.lease_id, unknown])
    first, second = keep_alive_many.sync(client=client, body=many).results
    assert first.valid_for_ms > 0 and second.code == models.Code.NOT_FOUND
    seen = lease_of.sync(opened.lease_id, client=client)
    assert sorted(grant.resource for grant in seen.grants) == names
    listed = leases.sync(client=client, client_id="w1", limit=1000)
    assert opened.lease_id in [item.lease_id for item in listed.items]
    assert end_lease.sync(opened.lease_id, client=client).ended
    assert all(state(client, name).state == models.LockState.FREE for name in names)
    gone = keep_alive.sync(opened.lease_id, client=client, body=models.KeepAlive())
    assert gone.code == models.Code.LEASE_ENDED


def watched(client, resource, count, act=lambda: None, **more):
    """The first events of a stream that is open while `act` acts. The generator makes functions
    that read to the end, and a stream has none, so only the models are its."""
    http, seen = client.get_httpx_client(), []
    with http.stream("GET", "/v1/watch", params={"resource": resource, **more}) as stream:
        assert stream.status_code == 200
        act()
        for line in stream.iter_lines():
            if line.startswith("data:"):
                seen.append(models.Event.from_dict(json.loads(line.removeprefix("data:"))))
            if len(seen) == count:
                return seen


def test_a_watcher_sees_what_happens_and_goes_on_where_it_was(client, resource):
    granted, released = watched(
        client, resource, 2, lambda: give_back(client, take(client, resource))
    )
    assert granted.event == models.EventKind.GRANTED
    assert released.event == models.EventKind.RELEASED
    assert granted.token == released.token and granted.resource == resource
    (again,) = watched(client, resource, 1, **{"from": granted.revision})
    assert again == released


def test_the_history_knows_whether_a_token_was_valid(client, resource):
    grant = take(client, resource)
    give_back(client, grant)
    record = grants.sync(client=client, resource=resource).items[0]
    assert record.token == grant.token and record.how == models.EndedHow.RELEASED
    then = grants.sync(client=client, token=grant.token, at=record.granted_at)
    assert [one.valid for one in then.items] == [True]
    after = grants.sync(client=client, token=grant.token, at=record.ended_at)
    assert [one.valid for one in after.items] == [False]


def test_an_operator_ends_a_grant(client, resource):
    grant = take(client, resource)
    asked = models.ForceRelease(
        resource=resource, token=grant.token, reason="hangs", when=models.ForceWhen.NOW
    )
    assert force_release.sync(client=client, body=asked).ended
    problem = give_back(client, grant)
    assert problem.code == models.Code.GRANT_ENDED and problem.how == "forced"


def test_health_is_told_without_a_body_of_ours(client):
    assert livez.sync(client=client).status == models.HealthStatus.OK
    assert readyz.sync(client=client).status == models.HealthStatus.OK
