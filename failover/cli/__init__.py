"""Commands that attach clients to a mesh, break one, or judge one. `router.cli.main` has the list of all commands."""
