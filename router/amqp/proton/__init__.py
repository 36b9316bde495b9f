"""Proton's C engine as we call it, and one link on it. Nothing here knows the connection or its frames."""
