"""The mesh: its records, its flows, and the etcd cluster that lives on it."""
