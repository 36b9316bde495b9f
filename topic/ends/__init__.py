"""The router's ends of links, for every protocol of clients and for links without a client."""
