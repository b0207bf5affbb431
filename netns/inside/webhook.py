"""A web server that keeps what it is sent: PORT FILE."""

import http.server
import sys
from pathlib import Path


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with Path(sys.argv[2]).open("ab") as file:
            file.write(body + b"\n")
        self.send_response(204)
        self.end_headers()


http.server.HTTPServer(("", int(sys.argv[1])), Handler).serve_forever()
