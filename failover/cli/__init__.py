"""Commands that attach clients to a mesh, break a mesh, or judge one. `router.cli.main` lists all commands."""
