"""The router's ends of links: for clients of every protocol, and for links that have no client."""
