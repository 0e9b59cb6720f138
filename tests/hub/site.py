"""A server in this process, and what it serves."""

from __future__ import annotations

import io
import os
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import weft


class Site(ThreadingHTTPServer):
    """Serves `pages`: by path, a body, or (status, headers, body). `asked` has the requests."""

    daemon_threads = False

    def __init__(self):
        self.pages = {}
        self.asked = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Site
    timeout = 60  # for a client that says nothing

    def do_GET(self):
        self.server.asked.append((self.path, dict(self.headers)))
        found = self.server.pages.get(self.path, (404, {}, b"Not Found"))
        status, headers, body = (200, {}, found) if isinstance(found, bytes) else found
        self.send_response(status)
        for name, text in {"Content-Length": str(len(body)), **headers}.items():
            if text is not None:
                self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        pass


def left(folder):
    return sorted(os.listdir(folder)) if folder.exists() else []


def saved(obj):
    file = io.BytesIO()
    weft.save(obj, file)
    return file.getvalue()


def zipped(files):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return file.getvalue()
