"""Plain HTTP for tests: one request, one response of any status."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Reply:
    """One HTTP response."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - any JSON value
        return json.loads(self.text)

    @property
    def reason(self) -> str:
        """The reason of a problem response; fails for any other response."""
        assert self.headers["content-type"] == "application/problem+json", self
        return str(self.json["reason"])


def ask(
    address: str, path: str, body: object = None, *, method: str = "", token: str = "", authority: str = ""
) -> Reply:
    """Sends a GET, or a POST if there is a body; uses TLS if a CA file is given."""
    scheme = "https" if authority else "http"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = None if body is None else json.dumps(body).encode()
    if data is not None:
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(f"{scheme}://{address}{path}", data, headers, method=method or None)  # noqa: S310
    context = ssl.create_default_context(cafile=authority) if authority else None
    try:
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:  # noqa: S310
            return _reply(answer.status, answer)
    except urllib.error.HTTPError as error:
        with error:
            return _reply(error.code, error)


def _reply(status: int, answer: Any) -> Reply:  # noqa: ANN401 - a response or an HTTPError
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return Reply(status, headers, answer.read().decode())
