# Thin on purpose: each target calls one script or one subcommand, which can be run by hand just the same.

DIR ?= .shoal
SHOAL := target/release/shoal

.PHONY: help build up down test test-long bench

help:
	@echo "make up         build shoal, start a cluster in $(DIR)/, store a file and read it back"
	@echo "make down       stop it"
	@echo "make test       everything that gates a change (about 45 minutes from a cold clone on 2 cores)"
	@echo "make test-long  make test, then everything that is only long (some 5 hours)"
	@echo "make bench      measure a cluster of our own, print a table"

build:
	cargo build --release --locked --bin shoal

up:
	@tests/tools build
	@$(MAKE) --no-print-directory build
	@SHOAL=$(SHOAL) tests/first-run $(DIR)

down:
	@$(SHOAL) down --dir $(DIR)

test:
	@tests/run

test-long:
	@tests/run --long

bench: build
	@bench/run
