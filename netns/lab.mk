# The lab's targets; all need root. `netns/lab --help` has the lab itself.

.PHONY: lab-deps
lab-deps:
	@netns/deps

.PHONY: packages
packages: lab-deps ## build and lint the Debian packages, print their names
	netns/build

.PHONY: demo
demo: lab-deps ## three appliances over a bad link, and what keel does on them
	netns/demo

.PHONY: lab-test
lab-test: lab-deps venv ## the lab's own tests, on this machine's kernel
	$(PY) -m pytest netns/tests

.PHONY: etcd-test
etcd-test: lab-deps venv ## keel's etcd settings, certificates and client against the real etcd
	$(PY) -m pytest -n 3 --dist worksteal netns/etcd

.PHONY: image-test
image-test: lab-deps ## the tests of test and lives with Debian 13's own Python
	netns/imagetest

.PHONY: scenarios
scenarios: lab-deps ## the scenarios, with their table
	netns/check

# Side by side what takes one core at most: a type checker and a build. Nothing else: the tests take
# both cores, and an etcd or a scenario feels what runs beside it.
TWO := --jobs=2 --output-sync=target

.PHONY: check
check: lab-deps ## everything that has to hold: what CI runs
	$(MAKE) $(TWO) lint packages
	$(MAKE) coverage slow fuzz lint-certificates image-test
	$(MAKE) etcd-test lab-test scenarios

.PHONY: bench
bench: lab-deps ## keel beside bare etcd in one run (PARTS="birth rejoin" for some); not in CI
	netns/bench $(PARTS)

.PHONY: soak
soak: lab-deps venv ## a cluster from three to five and back over the bad link, 200 replacements; not in CI
	netns/soak
	KEEL_REPLACEMENTS=200 $(PY) -m pytest -s netns/etcd/test_replacements.py
