"""From files to rows: where logs and chaos.json are, what entries say, as columns. Nothing is judged here."""
