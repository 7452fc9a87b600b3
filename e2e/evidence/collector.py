# A collector that fails at first, as collectors do, and keeps what it takes.
import http.server
import json

asked = 0


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        global asked
        asked += 1
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked <= 2:
            self.send_response(503)
        else:
            for event in body["events"]:
                print("event", event["metadata"]["sequence"], event["activity_name"], event.get("sandbox", {}).get("name", "-"), flush=True)
            self.send_response(202)
        self.end_headers()

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("0.0.0.0", 8080), Collector).serve_forever()
