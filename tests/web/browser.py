"""A headless Chromium under a script: pages, JavaScript, keys, screenshots, and all addresses that were asked for.

It speaks the Chrome DevTools protocol over a pipe (file descriptors 3 and 4 of the browser), so it needs nothing but
Python and the browser.
"""

import base64
import functools
import http.server
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time


def find():
    """The browser's path, or None."""
    return next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


class Server:
    """Serves a folder on this machine, at .url."""

    def __init__(self, folder):
        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_):
                pass

        handler = functools.partial(Quiet, directory=folder)
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = "http://127.0.0.1:%d/" % self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


class Browser:
    def __init__(self, width=1280, height=800, dark=False):
        self.folder = tempfile.mkdtemp()
        to_read, self.write = os.pipe()
        self.read, to_write = os.pipe()
        command = [find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--disable-extensions", "--hide-scrollbars", "--user-data-dir=" + self.folder,
                   "--remote-debugging-pipe", "about:blank"]

        def pipes():  # the copies are out of the way of 3 and 4, and stay open in the browser
            a, b = os.dup2(to_read, 60), os.dup2(to_write, 61)
            os.dup2(a, 3), os.dup2(b, 4)

        self.process = subprocess.Popen(command, preexec_fn=pipes, close_fds=False, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_read), os.close(to_write)
        self.buffer, self.count, self.addresses, self.errors, self.sockets = b"", 0, [], [], []
        self.session = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.send("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True)  # workers too
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(domain + ".enable")
        self.size(width, height, dark)

    def size(self, width, height, dark=False):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.send("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def message(self):
        while b"\0" not in self.buffer:
            part = os.read(self.read, 1 << 16)
            if not part:
                raise RuntimeError("the browser has ended")
            self.buffer += part
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def note(self, m):
        """Keeps what was asked for, and errors of the page and of its workers."""
        method, p = m.get("method"), m.get("params", {})
        if method == "Network.requestWillBeSent":
            self.addresses.append(p["request"]["url"])
        if method == "Network.webSocketCreated":
            self.addresses.append(p["url"])
        if method == "Runtime.exceptionThrown":
            d = p["exceptionDetails"]
            self.errors.append(d.get("exception", {}).get("description", d["text"]))
        if method == "Log.entryAdded" and p["entry"]["level"] == "error":
            self.errors.append(p["entry"]["text"])
        if method == "Target.attachedToTarget" and p["targetInfo"]["type"] == "worker":
            for domain in ("Runtime", "Network"):  # answers to these are not waited for
                self.count += 1
                self.put({"id": self.count, "method": domain + ".enable", "sessionId": p["sessionId"]})

    def put(self, message):
        os.write(self.write, json.dumps(message).encode() + b"\0")

    def send(self, method, **params):
        self.count += 1
        number = self.count
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.put(message)
        while True:
            m = self.message()
            if m.get("id") == number:
                if "error" in m:
                    raise RuntimeError("%s: %s" % (method, m["error"]["message"]))
                return m["result"]
            self.note(m)

    def js(self, expression):
        """The value of an expression, which may be a promise."""
        r = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in r:
            raise RuntimeError(r["exceptionDetails"].get("exception", {}).get("description", "JavaScript failed"))
        return r["result"].get("value")

    def open(self, url):
        self.send("Page.navigate", url=url)

    def wait(self, condition, seconds=60, what=None):
        """Waits until a JavaScript expression is true, and returns it. None: the time is up."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                value = self.js(condition)
            except RuntimeError:  # the page is not there yet
                value = None
            if value:
                return value
            time.sleep(0.05)
        return None

    def click(self, selector):
        self.js("document.querySelector(%s).click()" % json.dumps(selector))

    def key(self, key, code=0):
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def screenshot(self, path, whole=False):
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))

    def close(self):
        try:
            self.session = None
            self.send("Browser.close")
        except (RuntimeError, OSError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
