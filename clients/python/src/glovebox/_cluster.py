"""Sandboxes as objects of Kubernetes: what is made, and that it is deleted whatever happens."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import httpx2
from lightkube import KubeConfig
from lightkube.config import client_adapter
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError as LightkubeConfigError

from . import _calls as calls
from ._errors import ApiError, ConfigError, ConnectionLost, Ended, GloveboxError, NotFound, StartTimeout
from ._span import Span, seconds, written
from ._wire import Flow, Patience, Sleep, ToCluster

API_VERSION = "glovebox.dev/v1alpha1"
MADE_BY = "glovebox.dev/made-by"
"""Says of which attempt an object is: how one is found again whose answer was lost."""


class CreateOptions(TypedDict, total=False):
    """What a sandbox is beside its image."""

    class_name: str | None
    """The SandboxClass; otherwise the default one."""
    ttl: Span
    """After how long it ends, whatever happens: 10 minutes if absent."""
    idle_timeout: Span | None
    """After how long without a call it ends; otherwise what its class says."""
    command: Sequence[str] | None
    """Its workload; without one it idles and waits for calls."""
    args: Sequence[str] | None
    """What follows `command`."""
    working_dir: str | None
    """Where the workload starts."""
    env: Mapping[str, str] | None
    """The workload's environment. Never a secret: whatever runs in the sandbox can read it."""
    resources: Mapping[str, str] | None
    """Such as `{"cpu": "500m", "memory": "512Mi"}`."""
    workspace: str | Mapping[str, Any] | None
    """Its size, such as `256Mi`, or all of `spec.workspace`."""
    egress_allow: Sequence[str | Mapping[str, Any]]
    """What it may reach: hosts as `api.example.com` or `api.example.com:8443`, or rules as in `spec.egress.allow`. Otherwise nothing."""
    egress_policies: Sequence[str]
    """EgressPolicy objects of the namespace."""
    spec: Mapping[str, Any] | None
    """Any other field of the AgentSandbox's spec."""
    name: str | None
    """Its name; otherwise one is made up."""
    namespace: str | None
    """Otherwise that of the kubeconfig's context."""
    labels: Mapping[str, str] | None
    """Labels of the object."""
    wait: Span
    """How long it may take until it is ready: 5 minutes if absent."""
    kubeconfig: str | os.PathLike[str] | None
    """A kubeconfig. Otherwise KUBECONFIG, then that of the pod, then ~/.kube/config."""
    context: str | None
    """A context of it; otherwise the current one."""


def rules(allow: Sequence[str | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Hosts as a rule for each port, and rules as they are."""
    if isinstance(allow, str | bytes):
        raise TypeError("egress_allow: expected a list, such as ['api.example.com']")
    ports: dict[int, list[str]] = {}
    whole: list[dict[str, Any]] = []
    for one in allow:
        if not isinstance(one, str):
            whole.append(dict(one))
            continue
        host, _, port = one.partition(":")
        if (
            not host
            or (port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536))
            or one.endswith(":")
        ):
            raise ValueError(f"egress_allow: {one!r} is neither HOST nor HOST:PORT")
        ports.setdefault(int(port or 443), []).append(host)
    made = [
        {"name": f"port-{port}", "hosts": sorted(set(hosts)), "ports": [port]} for port, hosts in sorted(ports.items())
    ]
    return made + whole


def manifest(image: str, namespace: str, nonce: str, options: CreateOptions) -> dict[str, Any]:
    """The AgentSandbox."""
    workspace, idle = options.get("workspace"), options.get("idle_timeout")
    egress = {"policies": list(options.get("egress_policies") or ()), "allow": rules(options.get("egress_allow") or ())}
    spec: dict[str, Any] = {
        "className": options.get("class_name"),
        "ttl": written(options.get("ttl") or "10m"),
        "idleTimeout": None if idle is None else written(idle),
        "command": list(options.get("command") or ()),
        "args": list(options.get("args") or ()),
        "workingDir": options.get("working_dir"),
        "env": [{"name": name, "value": value} for name, value in (options.get("env") or {}).items()],
        "resources": dict(options.get("resources") or {}),
        "workspace": {"size": workspace} if isinstance(workspace, str) else dict(workspace or {}),
        "egress": {key: value for key, value in egress.items() if value},
    }
    spec = {key: value for key, value in spec.items() if value not in (None, [], {})}
    metadata: dict[str, Any] = {
        "name": options.get("name") or f"sandbox-{secrets.token_hex(5)}",
        "namespace": namespace,
        "annotations": {MADE_BY: nonce},
    }
    if labels := options.get("labels"):
        metadata["labels"] = dict(labels)
    return {
        "apiVersion": API_VERSION,
        "kind": "AgentSandbox",
        "metadata": metadata,
        "spec": {"image": image, **spec, **(options.get("spec") or {})},
    }


def load(kubeconfig: str | os.PathLike[str] | None, context: str | None) -> SingleConfig:
    """How the cluster is reached."""
    named = kubeconfig or os.environ.get("KUBECONFIG")
    try:
        config = (KubeConfig.from_file(named) if named else KubeConfig.from_env()).get(context)
    except (LightkubeConfigError, KeyError, ValueError, OSError) as error:
        hint = "set KUBECONFIG to one file, or pass kubeconfig="
        raise ConfigError(f"the kubeconfig can't be used ({type(error).__name__}: {error}); {hint}") from error
    if config is None:
        raise ConfigError("the kubeconfig has no current context; pass context=")
    return config._replace(user=config.user or User())


def sync_client(config: SingleConfig) -> httpx2.Client:
    """Connections to the API server."""
    return client_adapter.Client(config, client_adapter.ConnectionParams())


def async_client(config: SingleConfig) -> httpx2.AsyncClient:
    """The same for async callers."""
    return client_adapter.AsyncClient(config, client_adapter.ConnectionParams())


@dataclass
class Plan:
    """A sandbox that is to be made, and what is known of it."""

    place: calls.Place
    body: dict[str, Any]
    patience: Span
    asked: bool = False
    """Whether it may have been made."""
    uid: str | None = None

    @classmethod
    def of(cls, image: str, namespace: str, options: CreateOptions) -> Plan:
        """What the options mean."""
        unknown = set(options) - CreateOptions.__optional_keys__
        if unknown:
            raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
        body = manifest(image, options.get("namespace") or namespace, f"python-client/{secrets.token_hex(16)}", options)
        place = calls.Place(body["metadata"]["namespace"], body["metadata"]["name"])
        return cls(place, body, options.get("wait", "5m"))


def _path(place: calls.Place, *, named: bool = True) -> str:
    rest = f"/{place.name}" if named else ""
    return f"/apis/{API_VERSION}/namespaces/{place.namespace}/agentsandboxes{rest}"


def create(plan: Plan) -> Flow[None]:
    """Makes it, and waits until it takes calls."""
    plan.asked = True
    try:
        made = yield ToCluster("POST", _path(plan.place, named=False), plan.body)
    except ApiError as refused:
        # Whoever refuses has made nothing; whoever fails may have.
        plan.asked = refused.status >= 500
        raise
    plan.uid = str(made["metadata"]["uid"])
    status = yield from calls.wait(plan.place, "Ready", plan.patience, young=True)
    if status.uid != plan.uid:
        raise Ended(
            "Ended", f"sandbox {plan.place.name} was deleted, and another one has its name; create one of another name"
        )
    if not status.reached:
        why = f"sandbox {plan.place.name} was not ready after {seconds(plan.patience):g}s: {status.message}"
        raise StartTimeout(f"{why}; give it more time by wait=, or see kubectl describe agentsandbox", status)


def delete(plan: Plan) -> Flow[None]:
    """Deletes what was made, and nothing else of that name."""
    if not plan.asked:
        return
    patience = Patience(times=6, total=20)
    while True:
        try:
            yield from _deleted(plan)
            return
        except NotFound as missing:
            # A request that was given up may still be on its way.
            wait = patience.pause() if plan.uid is None and missing.status == 404 else None
            if wait is None or wait > 1:
                return
        except GloveboxError as failure:
            if isinstance(failure, ApiError) and failure.status == 409:
                # Another one has the name by now.
                return
            passes = isinstance(failure, ConnectionLost) or (
                isinstance(failure, ApiError) and (failure.status == 429 or failure.status >= 500)
            )
            wait = patience.pause() if passes else None
            if wait is None:
                failure.add_note(f"sandbox {plan.place.namespace}/{plan.place.name} may be left, until its ttl is over")
                raise
        yield Sleep(wait)


def _deleted(plan: Plan) -> Flow[None]:
    if plan.uid is None:
        found = yield ToCluster("GET", _path(plan.place))
        metadata = found.get("metadata", {})
        if metadata.get("annotations", {}).get(MADE_BY) != plan.body["metadata"]["annotations"][MADE_BY]:
            return
        plan.uid = str(metadata["uid"])
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": plan.uid},
        "propagationPolicy": "Background",
    }
    yield ToCluster("DELETE", _path(plan.place), options)


def extend(place: calls.Place, ttl: Span) -> Flow[None]:
    """Another time to live, counted from when it was made."""
    body = {"spec": {"ttl": written(ttl)}}
    yield ToCluster("PATCH", _path(place), body, "application/merge-patch+json")
