"""The lab: appliances on one machine, joined by bad links. Start with `netns/lab --help`."""
