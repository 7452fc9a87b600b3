# What every test of calls begins with: the session's API as a tool would use it, with nothing but the standard library.
import base64
import http.client
import ssl
import threading

ARGS = json.loads(sys.argv[1])
CONTEXT = ssl.create_default_context(cadata=ARGS["ca"])
_own = threading.local()


def connection():
    """One for each thread, kept open from call to call."""
    if getattr(_own, "connection", None) is None:
        _own.connection = http.client.HTTPSConnection(ARGS["host"], 443, context=CONTEXT, timeout=90)
    return _own.connection


def exchange(method, path, body, said):
    """The answer and all of its body, over a connection that is kept while it can be."""
    try:
        connection().request(method, path, body=body, headers=said)
        answer = connection().getresponse()
        content = answer.read()
    except (http.client.HTTPException, OSError):
        connection().close()
        _own.connection = None
        raise
    if answer.will_close:
        connection().close()
        _own.connection = None
    return answer, content


def request(method, path, body=None, token=None, headers=None, raw=None):
    """The status and what the answer says."""
    said = {"Content-Type": "application/json", **(headers or {})}
    if token != "":
        said["Authorization"] = "Bearer " + (token or ARGS["token"])
    answer, content = exchange(method, path, raw if body is None else json.dumps(body), said)
    return answer.status, json.loads(content)


def transfer(method, path, body=None, token=None, headers=None):
    """The status, the kind and all of the answer's body, which is no JSON where it went well."""
    said = {"Authorization": "Bearer " + (token or ARGS["token"]), **(headers or {})}
    answer, content = exchange(method, path, body, said)
    return answer.status, answer.getheader("Content-Type", ""), content


def at(name, what="/exec", namespace=None):
    return f"/v1/namespaces/{namespace or ARGS['namespace']}/sandboxes/{name}{what}"


def run(name, *command, **more):
    """A command's answer; anything but an answer is a failure."""
    status, answer = request("POST", at(name), {"command": list(command), **more})
    if status != 200:
        raise SystemExit(f"{command[:1]} in {name}: {status} {answer}")
    return answer


def refusal(method, path, body=None, **more):
    """Status and reason of what is refused."""
    status, answer = request(method, path, body, **more)
    error = answer.get("error", {})
    return status, error.get("reason"), error.get("message", "")


def done():
    print("attempts", attempts, flush=True)
