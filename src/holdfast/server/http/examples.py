"""Examples in the OpenAPI document."""

from typing import Any

SUBMIT: dict[str, Any] = {
    "one job": {"type": "echo", "payload": {"text": "hello"}},
    "with options": {
        "type": "send_mail",
        "payload": {"to": "ann@example.com"},
        "queue": "mail",
        "priority": 7,
        "delay_s": 60,
        "max_attempts": 5,
        "backoff": {"kind": "exponential", "base_s": 2},
        "timeout_s": 30,
        "unique_key": "mail-ann",
        "labels": {"customer": "42"},
    },
    "several jobs": {"jobs": [{"type": "echo", "payload": [1]}, {"type": "echo", "payload": [2]}]},
}
REASON: dict[str, Any] = {"with a reason": {"reason": "no longer needed"}}
SCHEDULE: dict[str, Any] = {
    "every morning": {
        "name": "report",
        "type": "echo",
        "payload": {"text": "good morning"},
        "cron": "0 9 * * mon-fri",
        "timezone": "Europe/Paris",
        "overlap": "skip",
    },
    "every ten seconds": {"name": "ping", "type": "echo", "every_s": 10},
    "once": {"name": "launch", "type": "echo", "at": "2040-01-31T09:00:00Z"},
}
PREVIEW: dict[str, Any] = {"the next three": {"cron": "0 9 * * *", "timezone": "Europe/Paris", "count": 3}}
