# Calls through the session over one connection, each timed from request to answer. Prints the times in seconds.
import http.client
import json
import ssl
import sys
import time

ARGS = json.loads(sys.argv[1])
connection = http.client.HTTPSConnection(ARGS["host"], 443, context=ssl.create_default_context(cadata=ARGS["ca"]), timeout=60)
path = f"/v1/namespaces/{ARGS['namespace']}/sandboxes/{ARGS['sandbox']}/exec"
headers = {"Content-Type": "application/json", "Authorization": "Bearer " + ARGS["token"]}
body = json.dumps({"command": ["true"]})


def call():
    began = time.monotonic()
    connection.request("POST", path, body=body, headers=headers)
    reply = connection.getresponse()
    answer = json.loads(reply.read())
    took = time.monotonic() - began
    if reply.status != 200 or answer["exitCode"] != 0:
        raise SystemExit(f"{reply.status} {answer}")
    return took


call()  # The connection and its TLS are made once.
print(json.dumps({"took": [call() for _ in range(ARGS["calls"])]}))
