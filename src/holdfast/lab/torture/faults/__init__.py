"""Ways to break an arena, and what they break it with."""
