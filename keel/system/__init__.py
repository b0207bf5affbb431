"""The only doors to the machine: adapters behind the Protocols of keel.ports."""
