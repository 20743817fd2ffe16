"""The single writer: takes commands in order of urgency, decides them, makes them durable, then answers.

Invariants:
- Durable before reply. Whatever was decided on state that is not durable yet is answered after that state is.
- One frame is being synced at a time; everything decided meanwhile is the next frame.
- A failed write or sync stops the process at once; nothing is answered after it.
- No clock, thread, task or socket is touched here directly: they are the ports in `ports.py`.
"""
