# The lab's targets; all need root. `netns/lab --help` has the lab itself.

.PHONY: packages
packages: ## build and lint the Debian packages, print their names
	netns/deps
	netns/build
