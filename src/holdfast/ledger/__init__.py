"""The single writer: takes commands in order of urgency, decides them, makes them durable, then replies.

Invariants:
- Durable before reply. A reply that is based on state that is not durable yet is sent when that state is durable.
- One frame is synced at a time; events that are decided meanwhile go into the next frame.
- A failed write or sync stops the process at once; no reply is sent after it.
- The coordinator uses no clock, thread, task or socket directly, only through the ports in `ports.py`.
"""
