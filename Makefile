# make setup   .venv with every development extra; quick when nothing has changed
# make demo    all steps on an embedded PostgreSQL
# make quick   lint, the unit and conformance tests, one run from a table to its documents: for the loop of somebody
#              who works, a minute and a half on 2 cores
# make test    lint, types, import contracts, the site, tests; about 20 minutes on two cores in a fresh clone, set-up included
#              ROOMS="gbase lake": the tests by day in the folders of these names alone, and their vectors
# make nightly  everything: test, the tests that are longer or variants, more examples of each property, fresh schedules of
#              the simulation, interleaved ones, hostile input and the lowest versions; at most 90 minutes on two cores. A
#              part that fails ends no other, and the last line names it; PARTS="fuzz lowest": these alone
# make simulate  fresh schedules of a simulated publisher for SECONDS (60); SEED=7 shows the steps of one seed, or of a
#              plan in a file, SHRINK=7 leaves out what does not matter to its failure; with SECONDS, REPORT=1 adds which
#              features met in how many schedules, and the branches that they reached; FLOORS=2000 runs so many schedules, and
#              fails too if one of the places that count was met in too few of them; MUTATION="a.patch b.patch" tries
#              patches of the product: which of them do the schedules that reach their lines find? NEEDS=skip_refused
#              takes the schedules with steps of this kind
# make interleave  fresh schedules of real PostgreSQL sessions for SECONDS (60); SEED=7 and SHRINK=7 as above
# make real    applications that nobody here wrote (Wagtail, Tryton, procrastinate; APPLICATION=tryton: one of them), with
#              triggers on all of their tables: workload, migration, comparison of every object; 15 minutes
# make reached  which tests run which line of the product, in build/reached: for the next two
# make edges   which comparisons with a limit no test distinguishes from their neighbours: tests/net/edges.toml; hours,
#              and it goes on where it stopped
# make baseline  which faults the tests by day find: tests/net/baseline.toml; FAULTS="a.patch" tries patches, too
# make bench   the benchmarks, an hour and more; bench/RESULTS.md holds what they printed
# make lowest  the lowest versions of other packages that pyproject.toml allows: the tests of what uses each
# make lint    ruff, mypy, import-linter and the check of our prose alone; style is lint without mypy, types is mypy
# make reference  the parts of the documentation that come from the code: options, commands, error codes
# make diagrams   docs/diagrams to docs/pictures, with Graphviz; make recording: the demo and the status page there
# make docs    the documentation as a site in site/, strict: a broken link fails; make docs-serve shows it on localhost:8000
# make clean   removes what building and testing create; make distclean: .venv too

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := test

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
# Tests wait for servers, too; each worker costs its own collection, servers and Java: four on two cores.
WORKERS ?= 4
PYTEST_ARGS ?=
DEMO_ARGS ?=
BENCHES := $(addprefix bench/,drain.py consumers.py horizon.py partitions.py crowd.py concurrency.py http_sink.py followed_source.py opcodes.py culprits.py latency.py capture.py peers.py memory.py backlog.py changes.py live_copy.py sizing.py masks.py kafka.py qlik.py gbase.py linter.py)

SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

.PHONY: setup demo quick quick-tests test tests compiled lint style types docs docs-serve simulate interleave nightly real reached edges baseline lowest bench reference diagrams recording clean distclean

setup: $(STAMP)

# The environment belongs to this directory: a copied or moved tree makes its own.
$(STAMP): pyproject.toml scripts/setup
	@bash scripts/setup $@

demo: setup
	@$(BIN)/eventlog demo $(DEMO_ARGS)

lint: style types

style: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/lint-imports rooms.toml
	$(BIN)/python scripts/prose.py

types: setup
	$(BIN)/mypy

docs: setup
	$(SITE) build

docs-serve: setup
	$(SITE) serve

# Without the properties, of which each tries many examples, and without what starts a server of MySQL's family or a
# broker of Kafka.
quick: setup
	@$(MAKE) --no-print-directory --jobs 2 lint quick-tests

quick-tests: setup
	$(BIN)/pytest -n 3 --dist loadgroup -m "not night and not property" \
		-k "not mariadb and not kafka and not followed_cells and not follow_messages" tests/unit tests/conformance \
		tests/packaging/test_quick_start.py $(PYTEST_ARGS)

# Tests start hundreds of processes: each module is compiled once for all of them, though the environment forbids
# Python to keep what it compiles.
test: export PYTHONDONTWRITEBYTECODE :=
ifdef ROOMS
folders_of = $(or $(shell find tests -type d -name '$(1)'),$(error there is no folder $(1) below tests/))
test: setup
	$(BIN)/pytest -m "not night" -n 2 --dist loadgroup $(foreach room,$(ROOMS),$(call folders_of,$(room)) \
		$(wildcard tests/conformance/test_$(room)_*.py)) $(PYTEST_ARGS)
else
test: setup
	@$(MAKE) --no-print-directory --jobs 2 compiled style docs types tests
endif

# The tests wait now and then: mypy works meanwhile, and before them.
tests: setup compiled style docs
	EVENTLOG_TEST_SITE=site $(BIN)/pytest -m "not night" -n $(WORKERS) --dist loadgroup $(PYTEST_ARGS)

# The tests and what they import, for all workers, while the other core checks; not if no file has changed since. If
# it fails, a worker reports why.
compiled: setup
	@[ -z "$$(find eventlog tests -name '*.py' -newer $(VENV)/.compiled -print -quit 2>&1)" ] || \
		{ touch $(VENV)/.compiled; $(BIN)/pytest --collect-only > /dev/null 2>&1 || true; }

nightly: setup
	@$(BIN)/python scripts/nightly.py $(PARTS)

lowest: setup
	$(BIN)/python scripts/lowest.py build/lowest -n 2 --dist loadgroup $(PYTEST_ARGS)

simulate: setup
	@$(BIN)/python tests/simulation/$(if $(MUTATION),patches.py $(MUTATION) $(if $(NEEDS),--needs "$(NEEDS)"),simulate.py $(if $(SEED),--seed $(SEED),$(if $(SHRINK),--shrink $(SHRINK),$(if $(FLOORS),--floors $(FLOORS),--seconds $(or $(SECONDS),60)) $(if $(REPORT),--report))))

interleave: setup
	@$(BIN)/python tests/simulation/interleave.py $(if $(SEED),--seed $(SEED),$(if $(SHRINK),--shrink $(SHRINK),--seconds $(or $(SECONDS),60)))

real: setup
	@$(BIN)/python tests/real/run.py $(APPLICATION)

reached: setup
	$(BIN)/python tests/net/reached.py build/reached -m "not night" -n $(WORKERS) --dist loadgroup $(PYTEST_ARGS)

edges: setup
	nice -n 10 $(BIN)/python tests/net/edges.py build/reached/reached.json

baseline: setup
	$(BIN)/python tests/net/baseline.py build/reached/reached.json $(FAULTS)

bench: setup
	@for bench in $(BENCHES); do echo "== $$bench"; $(BIN)/python "$$bench"; done

reference: setup
	@$(BIN)/python scripts/reference.py

diagrams: setup
	@$(BIN)/python scripts/diagrams.py

recording: setup
	@$(BIN)/python scripts/recording.py
	EVENTLOG_TEST_PICTURES=docs/pictures $(BIN)/pytest tests/browser/test_status_page.py tests/browser/test_actions.py

clean:
	rm -rf build dist site $(VENV)/.compiled .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
