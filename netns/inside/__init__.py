"""Programs that run in an appliance, by its own Python; they are sent there by stdin."""
