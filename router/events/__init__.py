"""What happens at a router, by its kind: named by who logs it, kept for who asks (docs/management.md, Events)."""
