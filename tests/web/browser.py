"""A headless Chromium under a script: pages, JavaScript, keys, screenshots, and all addresses that were asked for.

It speaks the Chrome DevTools protocol over a pipe (file descriptors 3 and 4 of the browser), so it needs nothing but
Python and the browser.
"""

import base64
import functools
import http.server
import json
import os
import select
import shutil
import subprocess
import tempfile
import threading
import time


def find():
    """The browser's path, or None."""
    return next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


class Server:
    """Serves a folder on this machine, at .url. others: further folders by the path at which they are served. missing:
    a path that is not there; cut: a path of which half arrives."""

    def __init__(self, folder, others={}, missing=None, cut=None):
        self.asked = asked = []  # the paths that were asked for

        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                if self.path == missing:
                    self.send_error(404)
                elif self.path == cut:
                    with open(folder + cut, "rb") as f:
                        data = f.read()
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data[:len(data) // 2])
                    self.close_connection = True
                else:
                    super().do_GET()

            def translate_path(self, path):
                asked.append(path)
                for name, other in others.items():
                    if path.startswith(name):
                        self.directory, path = other, path[len(name):]
                return super().translate_path(path)

        handler = functools.partial(Quiet, directory=folder)
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = "http://127.0.0.1:%d/" % self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


class Browser:
    """A page of a browser that finds no host but this machine. .addresses: what the page and its workers have asked
    for; .errors: theirs, as their console shows them; .workers: the sessions of its workers."""

    ATTACH = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True}  # workers wait to be watched
    ANSWER = 120  # seconds that the browser may take for one answer

    def __init__(self, width=1280, height=800, dark=False):
        self.folder = tempfile.mkdtemp()
        to_read, self.write = os.pipe()
        self.read, to_write = os.pipe()
        command = [find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--no-first-run", "--disable-extensions", "--hide-scrollbars", "--disable-background-networking",
                   "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE "
                   "127.0.0.1", "--user-data-dir=" + self.folder, "--remote-debugging-pipe", "about:blank"]

        def pipes():  # the copies are out of the way of 3 and 4, and stay open in the browser
            a, b = os.dup2(to_read, 60), os.dup2(to_write, 61)
            os.dup2(a, 3), os.dup2(b, 4)

        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, preexec_fn=pipes, close_fds=False, stdout=subprocess.DEVNULL,
                                        stderr=self.log)
        os.close(to_read), os.close(to_write)
        self.buffer, self.count, self.addresses, self.errors, self.workers = b"", 0, [], [], []
        self.session = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(domain + ".enable")
        self.send("Target.setAutoAttach", **self.ATTACH)
        self.size(width, height, dark)

    def size(self, width, height, dark=False):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.send("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def message(self):
        end = time.monotonic() + self.ANSWER
        while b"\0" not in self.buffer:
            if not select.select([self.read], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser has not answered for %d seconds" % self.ANSWER)
            part = os.read(self.read, 1 << 16)
            if not part:
                self.log.seek(0)
                raise EOFError("the browser has ended: " + self.log.read().decode(errors="replace")[-2000:])
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
            self.errors.append(" ".join((p["entry"]["text"], p["entry"].get("url", ""))))
        if method == "Runtime.consoleAPICalled" and p["type"] in ("error", "assert"):
            self.errors.append(" ".join(str(a.get("value", a.get("description"))) for a in p["args"]))
        if method == "Target.attachedToTarget" and p["targetInfo"]["type"] != "page":
            self.workers.append(p["sessionId"])
            self.put(p["sessionId"], "Runtime.enable")  # answers to these are not waited for
            self.put(p["sessionId"], "Network.enable")
            self.put(p["sessionId"], "Target.setAutoAttach", **self.ATTACH)  # a worker may have its own
            self.put(p["sessionId"], "Runtime.runIfWaitingForDebugger")
        if method == "Target.detachedFromTarget" and p["sessionId"] in self.workers:
            self.workers.remove(p["sessionId"])

    def put(self, session, method, **params):
        """Sends a command and returns its number."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        return self.count

    def send(self, method, session=None, **params):
        """The answer to a command to the page, or to one of its workers."""
        number = self.put(session or self.session, method, **params)
        while True:
            m = self.message()
            if m.get("id") == number:
                if "error" in m:
                    raise RuntimeError("%s: %s" % (method, m["error"]["message"]))
                return m["result"]
            self.note(m)

    def js(self, expression, session=None):
        """The value of an expression, which may be a promise, in the page or in one of its workers."""
        r = self.send("Runtime.evaluate", session, expression=expression, awaitPromise=True, returnByValue=True)
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

    def point(self, selector):
        """Clicks with the mouse in the middle of an element, as a person does."""
        x, y = self.js("(r => [r.x + r.width / 2, r.y + r.height / 2])(document.querySelector(%s)"
                       ".getBoundingClientRect())" % json.dumps(selector))
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    CODES = {"Tab": 9, "Enter": 13, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39,
             "ArrowDown": 40}

    def key(self, key):
        for kind in ("rawKeyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=self.CODES[key])

    def screenshot(self, path, whole=False):
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))

    def close(self):
        try:
            self.session = None
            self.send("Browser.close")
        except (RuntimeError, OSError, EOFError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
