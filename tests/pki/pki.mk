PKILINT := $(KEEL_CACHE)/pkilint

.PHONY: lint-certificates
lint-certificates: venv ## every kind of certificate and CRL before openssl and pkilint
	tests/pki/pkilint-venv $(PKILINT)
	rm -rf build/pki-lint
	$(PY) -m tests.pki.linters --out build/pki-lint --need openssl pkilint --pkilint $(PKILINT)
