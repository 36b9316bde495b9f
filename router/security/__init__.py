"""Who may come in, and who we are: users, certificates, the mesh's secret (docs/security.md)."""
