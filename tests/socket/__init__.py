"""Tests over real loopback sockets."""
