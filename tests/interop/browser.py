"""Headless Chromium on a pipe (its DevTools protocol, messages between zero bytes): opens a file, tells what it drew,
what it complained of, and whatever it wanted from outside."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
from pathlib import Path

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SECONDS_MAX = 60


class Browser:
    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="shoal-browser-", ignore_cleanup_errors=True)
        (to_browser, self.out), (self.into, from_browser) = os.pipe(), os.pipe()
        # The protocol's pipe is on the descriptors 3 and 4, which a shell puts where they belong.
        argv = [PROGRAM, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
                "--hide-scrollbars", f"--user-data-dir={self.profile.name}", "about:blank"]
        self.process = subprocess.Popen(
            ["sh", "-c", f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"', "sh", *argv],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser), os.close(from_browser)
        self.rest, self.number, self.events = b"", 0, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1,
                  uploadThroughput=-1)

    def close(self):
        # Asked first, so that its many processes are gone before its folder goes.
        try:
            self.call("Browser.close")
            self.process.wait(timeout=10)
        except (RuntimeError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.out), os.close(self.into)
        self.profile.cleanup()

    def receive(self):
        while b"\0" not in self.rest:
            if not select.select([self.into], [], [], SECONDS_MAX)[0]:
                raise RuntimeError(f"the browser says nothing for {SECONDS_MAX} s")
            more = os.read(self.into, 1 << 20)
            if not more:
                raise RuntimeError("the browser is gone")
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data):]
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, file: Path, width=1280, height=800, scheme="light", media="screen"):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", media=media,
                  features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.call("Page.navigate", url=file.resolve().as_uri())
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.receive())

    def ask(self, script):
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def requested(self):
        """Every address but the page's own and what it carries in itself."""
        urls = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [u for u in urls if not u.startswith(("file:", "data:"))], [u for u in urls if u.startswith("file:")]

    def complaints(self):
        found = []
        for e in self.events:
            if e.get("method") == "Log.entryAdded":
                found.append(e["params"]["entry"]["text"])
            if e.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
                found.append(json.dumps(e["params"]))
        return found

    def screenshot(self, to: Path, whole=True):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        to.write_bytes(base64.b64decode(data))

    def pdf(self, to: Path):
        data = self.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)["data"]
        to.write_bytes(base64.b64decode(data))
