# Every target does its own set-up: a virtual environment in .venv and, where we are root on Debian,
# the few system packages that the tests can use. A stamp keeps the set-up from running twice.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# What somebody has set for other programs: without assertions no test could fail, and where no bytecode is written each
# of the hundreds of processes of a test run compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE PYTHONOPTIMIZE PYTHONPATH PYTHONHOME PYTHONWARNINGS PYTHONSAFEPATH PYTHONINSPECT
unexport PYTEST_ADDOPTS PYTEST_PLUGINS PYTEST_DISABLE_PLUGIN_AUTOLOAD

VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# More than there are cores: many tests wait most of the time.
WORKERS ?= 4
# What make long simulates: so many seeds of 60 s, and so many of 180 s.
LONG_SEEDS ?= 5000
LONGEST_SEEDS ?= 500
# Further arguments for pytest, such as ARGS="-k retention"
ARGS ?=

.PHONY: help demo console test long check unit java fmt bench bench-quick clean

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 19

demo: .stamps/run .stamps/console ## The telemetry pipeline end to end, with a live page (DEMO_SECONDS=n ends it by itself)
	@exec $(BIN)/python -m examples.demo

console: .stamps/console ## Build the web console into the package

test: .stamps/dev .stamps/console ## Everything that proves the project: checks, and all tests
	@# The checks on one core, and on the other one a look at all tests: what it compiles, no worker has to.
	@$(MAKE) --no-print-directory check > .stamps/check.log 2>&1 & checks=$$!; \
	$(PYTEST) --collect-only -q $(ARGS) > /dev/null 2>&1; \
	$(PYTEST) -n $(WORKERS) --dist loadgroup --no-loadscope-reorder -m "not long" $(ARGS); tested=$$?; \
	wait $$checks; checked=$$?; cat .stamps/check.log; [ $$checked -eq 0 ] || exit $$checked; exit $$tested

long: .stamps/dev .stamps/console ## What takes hours more: seeds that nobody has run, failovers, the whole demo
	$(PYTEST) -m long $(ARGS)
	$(PYTEST) -n $(WORKERS) -m hypothesis --hypothesis-profile=fresh $(ARGS)
	$(BIN)/millstream sim --fresh --seeds $(LONG_SEEDS) --long-seeds $(LONGEST_SEEDS) --every-mark

unit: .stamps/dev ## The unit tests alone
	$(PYTEST) -n $(WORKERS) tests/unit $(ARGS)

java: .stamps/dev .stamps/kafka-jars .stamps/spark-jars ## Against Apache Kafka and Spark's connector (needs Maven, Java 17)
	MILLSTREAM_TEST_KAFKA_JARS=$(CURDIR)/.stamps/kafka-jars MILLSTREAM_TEST_SPARK_KAFKA_JARS=$(CURDIR)/.stamps/spark-jars \
		$(PYTEST) tests/java tests/spark/test_apache_kafka.py tests/spark/test_official_connector.py $(ARGS)

.stamps/kafka-jars: tests/java/pom.xml
	mvn -q -f tests/java/pom.xml dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/.stamps/kafka-jars
	@touch $@

.stamps/spark-jars: tests/spark/pom.xml
	mvn -q -f tests/spark/pom.xml dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/.stamps/spark-jars
	@touch $@

check: .stamps/dev ## Lint, format, types, and the import contracts between the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: .stamps/dev ## Format the code and mend what the linter can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .stamps/dev ## Measure throughput, latency, start time and memory
	$(BIN)/python -m bench $(ARGS)

bench-quick: .stamps/dev ## Whether the way of a message became dearer: under 3 minutes, fails on a loss of more than 15 %
	$(BIN)/python -m bench.guard $(ARGS)

clean: ## Remove the virtual environment, caches and everything built
	rm -rf $(VENV) .stamps build dist bench/out data console/node_modules src/millstream/console/static
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.stamps/run: pyproject.toml scripts/setup
	@scripts/setup run

.stamps/dev: pyproject.toml scripts/setup
	@scripts/setup dev

CONSOLE_SOURCES := $(shell find console -name node_modules -prune -o -type f -print)

# Without the npm registry the script says so and makes no stamp: everything else works without the page.
.stamps/console: $(CONSOLE_SOURCES) scripts/build_console.py | .stamps/run
	@$(BIN)/python scripts/build_console.py
