"""Authentication and authorization: users, certificates, the mesh's secret (docs/security.md)."""
