"""A headless Chromium that is asked over a pipe, by its DevTools protocol: no driver, no socket."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--remote-debugging-pipe",
)
Message = dict[str, Any]


def program() -> str | None:
    """Chromium, where it is installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Tab:
    """A page of a running browser."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._count, self._rest = to, back, 0, b""
        self.events: list[Message] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> Message:
        """The answer to *method* on this page."""
        return self._call(method, self._session, **parameters)

    def open(self, path: Path) -> None:
        """Load the file *path* and wait until it is there; ``events`` are those of this load."""
        self.events.clear()
        self.ask("Page.navigate", url=path.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._take(self._receive())

    def evaluate(self, expression: str) -> Any:
        """What the page's own JavaScript makes of *expression*."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def resize(self, width: int, height: int = 800) -> None:
        """A screen of *width* x *height* CSS pixels, a phone's below 600."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def prefer(self, media: str = "", scheme: str = "light") -> None:
        """Print or screen, light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", media=media, features=features)

    def _call(self, method: str, session: str | None = None, **parameters: Any) -> Message:
        self._count += 1
        message: Message = {"id": self._count, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                result: Message = answer["result"]
                return result
            self._take(answer)

    def _take(self, message: Message) -> None:
        if "method" in message:
            self.events.append(message)

    def _receive(self) -> Message:
        while b"\0" not in self._rest:
            read = os.read(self._back, 1 << 20)
            assert read, "the browser has gone"
            self._rest += read
        found, self._rest = self._rest.split(b"\0", 1)
        message: Message = json.loads(found)
        return message


@contextmanager
def opened(folder: Path) -> Iterator[Tab]:
    """A browser whose profile lies in *folder*, for as long as it is needed."""
    chromium = program()
    assert chromium is not None
    hears, to = os.pipe()
    back, says = os.pipe()
    command = f'exec "$0" "$@" 3<&{hears} 4>&{says}'
    process = subprocess.Popen(
        ["bash", "-c", command, chromium, *FLAGS, f"--user-data-dir={folder}"],
        pass_fds=(hears, says),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(hears)
    os.close(says)
    try:
        yield Tab(to, back)
    finally:
        os.close(to)
        os.close(back)
        process.terminate()
        process.wait(timeout=30)
