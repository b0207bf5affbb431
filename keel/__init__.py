"""keel: a private mesh of Debian servers over WireGuard, with an etcd registry on it."""

# A constant: importlib.metadata costs 20 ms at every start.
VERSION = "0.1.0"
