# Every target does its own set-up on a machine with Python 3.11 and make; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
# The two builds have their own marks, so that asking for the other one builds again.
READY := .venv/.ready$(if $(filter 1,$(ODRADEK_PURE)),-pure)
LOOPS := $(wildcard src/odradek/records/*.pyx src/odradek/records/*.pxi)
# The build with everything compiled stands beside the development install: put in front of it, it is the one that is imported.
COMPILED := $(CURDIR)/build/compiled
COMPILED_READY := build/compiled/.ready
SOURCES := $(shell find src/odradek -name '*.py')
FUZZ_SECONDS ?= 60
COMMIT ?= fdef23a
# The order of the tests: one for the gate, so that a verdict can be had again; any other to look for trouble.
SEED ?= 1
SEEDS ?= 1000
RUNS ?= 1
CLUSTER ?= odradek
# Of pytest, for two cores, beside the one process of the tests on Spark: half the time a test waits, for a process that starts, a broker
# that is dead long enough, a session that ends.
WORKERS ?= 4
# What a compiled build can change; foreign clients and Spark see the same broker through the wire.
TESTED_COMPILED ?= tests/unit tests/property tests/fuzz tests/contract tests/integration tests/torture \
	tests/architecture/test_compiled_modules.py --ignore=tests/unit/spark --ignore=tests/integration/test_wheels.py -m "not kafka"
PYTEST := scripts/in-memory $(BIN)/pytest -q --randomly-seed=$(SEED)
# Neighbours stay with one worker, and share what their module has started, until another worker has nothing left.
WORKERS_OPTIONS := -n $(WORKERS) --dist worksteal
# Without a compiler everything is pure Python, and has been tested as such.
IS_COMPILABLE = $(if $(filter 1,$(ODRADEK_PURE)),,$(shell command -v cc))

NOT_COMPILED = $(if $(filter 1,$(ODRADEK_PURE)),ODRADEK_PURE=1 asks for pure Python,no compiler here)

# Tests start Python by the hundred: each process would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup compiled test-compiled test-spark test-others parts demo test check unit mutants rewrite torture sim chaos restarts fmt lint types imports kafka bench bench-kafka bench-commit bench-spark docs fuzz dist clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## make .venv with the package, its compiled modules and the tools (ODRADEK_PURE=1: none compiled)

$(READY): pyproject.toml setup.py scripts/setup scripts/debian-packages $(LOOPS)
	@scripts/setup
	@rm -f .venv/.ready*
	@touch $@

compiled: $(COMPILED_READY) ## build the package with all that can be compiled into build/compiled

$(COMPILED_READY): $(READY) scripts/compiled $(SOURCES)
	@scripts/compiled
	@touch $@

demo: $(READY) ## a broker that survives a kill, a cluster that does, a pipeline from a topic to a table
	@$(BIN)/python -m scripts.demo

test: $(READY) ## all checks and all tests, and once more with everything compiled; what CI runs
	@$(MAKE) -j 3 --output-sync=target lint imports parts
	@$(MAKE) -j 3 --output-sync=target test-spark test-others types

# One after the other: the packages of Debian have one lock.
parts: $(READY) ## fetch what `test` can do without: Apache Kafka, ZooKeeper, PostgreSQL, Prometheus, the Kafka connector of Spark
	@scripts/kafka || echo "test: no Apache Kafka here, the tests that need it will be skipped"
	@scripts/spark-connector || echo "test: no Kafka connector of Spark here, the tests that need it will be skipped"
	@scripts/debian-packages zookeeper || echo "test: no ZooKeeper here, the tests that need it will be skipped"
	@scripts/debian-packages prometheus || echo "test: no Prometheus here, the tests that need it will be skipped"
	@scripts/debian-packages postgresql || echo "test: no PostgreSQL here, the tests that need it will be skipped"

test-spark: $(READY) ## the tests of pipelines, on one real Spark; in a process of their own, whose logging Spark takes over
	@$(PYTEST) tests/spark

test-others: $(READY) $(if $(IS_COMPILABLE),$(COMPILED_READY)) ## all tests but those on Spark, then what a compiled build can change once more, compiled
	@$(PYTEST) $(WORKERS_OPTIONS) --ignore=tests/spark
	@$(if $(IS_COMPILABLE),$(MAKE) test-compiled,echo "test: $(NOT_COMPILED), nothing was tested compiled")

test-compiled: $(COMPILED_READY) ## the tests that a compiled build can change, with everything compiled
	@PYTHONPATH=$(COMPILED) $(PYTEST) $(WORKERS_OPTIONS) $(TESTED_COMPILED)

check: test ## the same as test

unit: $(READY) ## the suite of a minute: units, contracts and scenarios, without processes and whatever is slow
	@$(PYTEST) -n 2 -m "not slow and not kafka" tests/unit tests/contract tests/scenarios

mutants: $(READY) ## move each border of the modules that decide by one: a test must notice
	@$(BIN)/python -m scripts.mutants

rewrite: $(READY) ## write the traces of tests/scenarios anew: what differs is what a change leads to
	@$(BIN)/python -m tests.scenarios.rewrite

torture: $(READY) ## damage SEEDS (1000) data directories, each in its own way, and judge what is left of them
	@$(BIN)/python -m tests.torture --seeds $(SEEDS)

sim: $(READY) ## simulate SEEDS (1000) troubled lives of one broker and its clients: kills, power cuts, bad disks, bad links
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS)

chaos: $(READY) ## RUNS (1) lives of three brokers and their clients under kills, pauses and cut links, drawn from SEED (CLUSTER=kafka: the same for Apache Kafka; TRANSACTIONS=1: pipelines, also on CLUSTER=odradek-alone or kafka-alone)
	@scripts/kafka || echo "chaos: no Apache Kafka here, faults that need its tools are left out"
	@scripts/debian-packages iproute2 zookeeper || echo "chaos: no ZooKeeper or no iproute2 here"
	@$(BIN)/python -m tests.chaos --runs $(RUNS) --seed $(SEED) --cluster $(CLUSTER) $(if $(TRANSACTIONS),--transactions --faults 3)

restarts: $(READY) ## RUNS (1) producers, of librdkafka, Java and ours, whose broker is killed or stopped with the answers to five requests, drawn from SEED
	@scripts/kafka || echo "restarts: no Apache Kafka here, Java's client is left out"
	@$(BIN)/python -m tests.restarts --runs $(RUNS) --seed $(SEED)

fmt: $(READY) ## format the code and mend what the linter can
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format .

lint: $(READY) ## ruff (rules and format) and codespell
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/codespell

types: $(READY) ## mypy, strict
	@$(BIN)/mypy

imports: $(READY) ## the layers and other import contracts
	@$(BIN)/lint-imports --no-logo

kafka: ## fetch Apache Kafka into a cache outside the tree, for the tests against it
	@scripts/kafka

bench: $(COMPILED_READY) ## measure the compiled build; prints a table, keeps the raw figures in benchmarks/results
	@PYTHONPATH=$(COMPILED) $(BIN)/python -m benchmarks

bench-kafka: $(COMPILED_READY) ## measure the broker beside an Apache Kafka, the same loads for both (ARGS=--cluster: three brokers)
	@scripts/kafka
	@$(if $(findstring --cluster,$(ARGS)),scripts/debian-packages zookeeper)
	@PYTHONPATH=$(COMPILED) $(BIN)/python -m benchmarks --beside-kafka $(ARGS)

bench-commit: $(COMPILED_READY) ## measure what a request costs beside a broker of another commit (COMMIT=fdef23a)
	@PYTHONPATH=$(COMPILED) $(BIN)/python -m benchmarks --beside-commit $(COMMIT)

bench-spark: $(COMPILED_READY) ## measure the pipeline beside Spark's own Kafka connector, taken in turn in one Spark
	@scripts/spark-connector
	@PYTHONPATH=$(COMPILED) $(BIN)/python -m benchmarks --only spark-read-100B --only spark-read-1KB --only spark-stream --only spark-write --only spark-exactly-once --only pipeline-check

docs: $(READY) ## write the reference pages and the tree of ARCHITECTURE.md; check the documents: paths, links and commands they name
	@$(BIN)/python scripts/generate_reference.py
	@$(BIN)/python scripts/generate_tree.py
	@$(BIN)/pytest -q tests/architecture/test_docs.py

fuzz: $(READY) ## throw ever new examples at decoders and models for FUZZ_SECONDS (60)
	@end=$$((SECONDS + $(FUZZ_SECONDS))); \
	while [ $$SECONDS -lt $$end ]; do ODRADEK_EXAMPLES=explore $(BIN)/pytest -n 2 -q tests/fuzz tests/property; done

dist: $(READY) ## build what a package index takes into dist/, and install and try it without a compiler
	@scripts/dist

clean: ## remove what make has made, except the cache of Apache Kafka
	@rm -rf .venv build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find src -name '*.so' -delete
	@rm -f src/odradek/compiled.json
	@find . -name __pycache__ -prune -exec rm -rf {} +
