"""A sandbox is made and deleted, whatever happens in between."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.to_thread
import pytest
from fake import Answer, Fake, problem, refused
from flavours import Flavour

import glovebox
from glovebox import Session
from glovebox._cluster import MADE_BY


def test_one_is_made_and_deleted(surface: Flavour, session: Session, fake: Fake) -> None:
    options = {
        "class_name": "gvisor",
        "command": ["sleep", "9"],
        "env": {"A": "1"},
        "resources": {"cpu": "10m"},
        "workspace": "64Mi",
        "egress_allow": ["b.example", "a.example", "a.example:8443", {"name": "mine", "cidrs": ["192.0.2.0/24"]}],
        "spec": {"ttlAfterFinished": "1m"},
        "labels": {"run": "1"},
        "ttl": 90,
    }
    with surface.Sandbox.create(image="python", session=session, **options) as sandbox:
        (made,) = fake.objects.values()
        assert sandbox.exec(["echo", "a"], check=True).stdout == "a\n"
        assert (sandbox.namespace, sandbox.name) == ("ns", made["metadata"]["name"])
    assert made["apiVersion"] == "glovebox.dev/v1alpha1"
    assert made["metadata"]["labels"] == {"run": "1"}
    assert made["spec"] == {
        "image": "python",
        "className": "gvisor",
        "ttl": "90s",
        "command": ["sleep", "9"],
        "env": [{"name": "A", "value": "1"}],
        "resources": {"cpu": "10m"},
        "workspace": {"size": "64Mi"},
        "egress": {
            "allow": [
                {"name": "port-443", "hosts": ["a.example", "b.example"], "ports": [443]},
                {"name": "port-8443", "hosts": ["a.example"], "ports": [8443]},
                {"name": "mine", "cidrs": ["192.0.2.0/24"]},
            ]
        },
        "ttlAfterFinished": "1m",
    }
    assert not fake.objects
    assert [said.headers["authorization"] for said in fake.said if said.path.startswith("/apis/")] == [
        "Bearer for-the-cluster"
    ] * 2
    assert fake.said[-1].json["preconditions"] == {"uid": made["metadata"]["uid"]}


def test_the_least_says_little(surface: Flavour, session: Session, fake: Fake) -> None:
    with surface.Sandbox.create("python", session=session):
        (made,) = fake.objects.values()
        assert made["spec"] == {"image": "python", "ttl": "10m"}


def test_it_is_deleted_when_its_user_fails(surface: Flavour, session: Session, fake: Fake) -> None:
    with pytest.raises(ZeroDivisionError), surface.Sandbox.create("python", session=session):
        raise ZeroDivisionError
    assert (len(fake.paths("POST")), fake.objects) == (1, {})


def test_another_of_its_name_is_left_alone(surface: Flavour, session: Session, fake: Fake) -> None:
    with surface.Sandbox.create("python", session=session, name="mine"):
        fake.objects["mine"]["metadata"]["uid"] = "another"
    assert list(fake.objects) == ["mine"]
    with pytest.raises(glovebox.AlreadyExists), surface.Sandbox.create("python", session=session, name="mine"):
        pass
    assert list(fake.objects) == ["mine"]


def test_the_session_may_know_later(surface: Flavour, session: Session, fake: Fake) -> None:
    fake.instead = [problem("NotFound", 404)] * 3
    with surface.Sandbox.create("python", session=session):
        pass
    assert not fake.objects


def test_one_that_does_not_start_is_deleted(surface: Flavour, session: Session, fake: Fake) -> None:
    fake.waits = [{"reached": False, "message": "no node has room"}]
    with (
        pytest.raises(glovebox.StartTimeout, match="no node has room") as caught,
        surface.Sandbox.create("python", session=session, wait="1s"),
    ):
        pass
    assert caught.value.status is not None
    assert not fake.objects
    fake.instead = [problem("Ended", 410)]
    with pytest.raises(glovebox.Ended), surface.Sandbox.create("python", session=session):
        pass
    assert not fake.objects


def test_one_whose_making_was_lost_is_found_and_deleted(surface: Flavour, session: Session, fake: Fake) -> None:
    fake.lose_after = {"POST"}
    with pytest.raises(glovebox.ConnectionLost), surface.Sandbox.create("python", session=session):
        pass
    assert (len(fake.paths("DELETE")), fake.objects) == (1, {})
    # Of the same name, but not of this attempt.
    fake.objects["mine"] = {"metadata": {"uid": "1", "annotations": {MADE_BY: "another"}}}
    fake.instead_of_cluster = [Answer(None)]
    with pytest.raises(glovebox.ConnectionLost), surface.Sandbox.create("python", session=session, name="mine"):
        pass
    assert list(fake.objects) == ["mine"]


def test_a_deletion_is_tried_again(surface: Flavour, session: Session, fake: Fake) -> None:
    with surface.Sandbox.create("python", session=session):
        fake.instead_of_cluster = [refused("InternalError", 500)]
        fake.lose_after = {"DELETE"}
    assert (len(fake.paths("DELETE")), fake.objects) == (3, {})


def test_a_deletion_that_is_refused_is_told(surface: Flavour, session: Session, fake: Fake) -> None:
    with pytest.raises(glovebox.Forbidden) as caught, surface.Sandbox.create("python", session=session):
        fake.instead_of_cluster = [refused("Forbidden", 403)]
    assert "may be left" in caught.value.__notes__[0]
    with pytest.raises(ZeroDivisionError) as other, surface.Sandbox.create("python", session=session):
        _fails_while(fake, refused("Forbidden", 403))
    assert "may be left" in other.value.__notes__[0]


def _fails_while(fake: Fake, answer: Answer) -> None:
    fake.instead_of_cluster = [answer]
    raise ZeroDivisionError


def test_a_refused_one_is_not_looked_for(surface: Flavour, session: Session, fake: Fake) -> None:
    fake.instead_of_cluster = [refused("Forbidden", 403)]
    with pytest.raises(glovebox.Forbidden), surface.Sandbox.create("python", session=session):
        pass
    assert len(fake.said) == 1


def test_it_may_live_longer(sandbox: Any, session: Session, fake: Fake) -> None:
    assert session
    fake.objects["box"] = {"metadata": {"uid": "1"}, "spec": {"ttl": "1m"}}
    sandbox.extend("5m")
    assert fake.objects["box"]["spec"]["ttl"] == "5m"


def test_wrong_options_are_told(surface: Flavour, session: Session, fake: Fake) -> None:
    wrong: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"egress_allow": ["a:b"]}, ValueError),
        ({"egress_allow": "a.example"}, TypeError),
        ({"namespace": "../x"}, ValueError),
        ({"lifetime": "1m"}, TypeError),
    ]
    for options, kind in wrong:
        with pytest.raises(kind), surface.Sandbox.create("python", session=session, **options):
            pass
    assert not fake.said


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("where", ["inside", "waiting"])
def test_it_is_deleted_when_its_task_is_cancelled(session: Session, fake: Fake, backend: str, where: str) -> None:
    reached = []

    async def used(scope: anyio.CancelScope) -> None:
        async with glovebox.AsyncSandbox.create("python", session=session) as sandbox:
            reached.append(sandbox.name)
            scope.cancel()
            await anyio.sleep(60)

    async def cancelled() -> None:
        with anyio.CancelScope() as scope:
            if where == "waiting":
                # Unknown for long, so that it is asked for again and again.
                fake.instead = [problem("NotFound", 404)] * 1000
                async with anyio.create_task_group() as group:
                    group.start_soon(used, scope)
                    await anyio.to_thread.run_sync(fake.waited_for.wait)
                    scope.cancel()
            else:
                await used(scope)

    anyio.run(cancelled, backend=backend)
    assert bool(reached) == (where == "inside")
    assert (len(fake.paths("POST")), fake.objects) == (1, {})
