# make demo   the main job end to end: a mesh, clients, a verdict
# make test   the rules, the edges, router processes: what each change has to pass
# make prove  the rules again, in searches and simulations of many interleavings, each rule broken on purpose
# make test-system   documents as they stand, clients of other makes, hosts, a Spark cluster, a wheel
# make test-python PYTHON=python3.13   what another Python may do otherwise: the seam to AMQP, with what of it is compiled
#             and without, and the README as it stands
# make lint   style and types
# make bench  throughput and latency on this machine, with a load generator in C; and what many links cost
# make spark-python  the Python that a Spark cluster runs the audit with, as an archive: docs/audit.md
#
# What proves the protocol at length, beyond what the tests do of it:
# make soak           twenty kills, and what the logs have of them; then the library of chaos scripts on real processes,
#                     which goes on where it was interrupted (SOAK=directory)
# make simulate-soak  50,000 simulated meshes, from one seed each, that nobody has played: it says from which seed on. One
#                     that fails is kept in tests/simulation/test_simulation.py. Then walks of MQTT and
#                     of queues, and audits of runs
# make exhaustive     every interleaving within small scopes
# make mutants        every rule broken on purpose, and who notices
# Each sets up .venv first if that has not been done.

PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready

# The tests with a JavaScript client run where npm is installed.
INTEROP_LOCK := $(if $(shell command -v npm),$(wildcard tests/interop/package-lock.json))
INTEROP_READY := $(INTEROP_LOCK:package-lock.json=node_modules/.ready)

SOAK ?= build/soak
SEEDS ?= 1-5

.PHONY: setup demo test prove test-system test-python lint spark-python bench bench-tools interop-tools soak simulate-soak exhaustive mutants clean

setup: $(READY) $(INTEROP_READY)
	@:

$(READY): pyproject.toml router/amqp/proton/loops.c router/amqp/proton/loops_build.py
	@echo "setting up $(VENV), once: pip downloads some 670 MB, 456 MB of it pyspark, which the audit judges with."
	@echo "It takes some minutes, and 1.3 GiB of disk."
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -m pip install --disable-pip-version-check --editable '.[dev]'
	@touch $@

tests/interop/node_modules/.ready: tests/interop/package-lock.json
	@npm ci --prefix tests/interop --silent --no-audit --no-fund
	@touch $@

demo: $(READY)
	@$(VENV)/bin/oncemesh demo

PYTEST = $(VENV)/bin/python -m pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder

test: setup
	@$(PYTEST) -m "not proves and not system"

prove: setup
	@$(PYTEST) -m proves

test-system: setup
	@$(PYTEST) -m system

# Each version in an environment of its own.
test-python: OTHER = build/python-$(shell $(PYTHON) -c 'import platform; print(platform.python_version())')
test-python:
	@$(MAKE) --silent VENV=$(OTHER) $(OTHER)/.ready
	@$(OTHER)/bin/python -m pytest --numprocesses 2 tests/router/amqp tests/processes/test_readme.py
	@ONCEMESH_INTERPRETED=1 $(OTHER)/bin/python -m pytest --numprocesses 2 tests/router/amqp

lint: setup
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check --quiet .
	@$(VENV)/bin/mypy

spark-python: setup
	@mkdir -p build
	@$(VENV)/bin/python -m failover.audit.read.bundle build/oncemesh-python.tar.gz
	@echo build/oncemesh-python.tar.gz

bench: setup
	@$(VENV)/bin/python -m tests.bench
	@$(VENV)/bin/python -m tests.bench.growth
	@$(VENV)/bin/python -m tests.bench.routers
	@$(VENV)/bin/python -m tests.bench.links
	@$(VENV)/bin/python -m tests.bench.fanout
	@$(VENV)/bin/python -m tests.bench.stalled
	@$(VENV)/bin/python -m tests.bench.memory

# What the load generator is built with; once, on Debian and as root.
bench-tools:
	apt-get update -qq
	apt-get install -y -qq gcc libc6-dev libqpid-proton11-dev

# The tools of the tests with Proton C++, RabbitMQ's client, Qpid JMS, protonj2, pyamqp, go-amqp, mosquitto's, network
# namespaces, a browser and Prometheus; once, on Debian and as root. Elsewhere these tests are skipped. The package of RabbitMQ
# is unpacked and not installed, because its server would be started. go-amqp is skipped if there is no Go: Debian's may be too
# old for it.
interop-tools:
	apt-get update -qq
	apt-get install -y -qq --no-install-recommends g++ libqpid-proton-cpp12-dev erlang-base erlang-inets erlang-ssl iproute2 \
		chromium chromium-driver prometheus mosquitto-clients
	(command -v javac && command -v mvn) >/dev/null || apt-get install -y -qq --no-install-recommends default-jdk-headless maven
	mkdir -p build/interop && cd build/interop && apt-get download -qq rabbitmq-server
	dpkg-deb -x build/interop/rabbitmq-server_*.deb build/interop/package
	rm -rf build/interop/rabbitmq && mv build/interop/package/usr/lib/rabbitmq/lib/*/plugins build/interop/rabbitmq
	rm -rf build/interop/package build/interop/rabbitmq-server_*.deb
	$(MAKE) --silent build/interop/proton_client build/interop/jms/JmsClient.class \
		build/interop/protonj2/ProtonJ2Client.class build/interop/azure/azure
	if command -v go; then $(MAKE) --silent build/interop/go_client; fi

build/interop/jms/JmsClient.class: tests/interop/jms/JmsClient.java tests/interop/jms/pom.xml
	@mvn --quiet --batch-mode --file tests/interop/jms/pom.xml dependency:copy-dependencies \
		-DoutputDirectory=$(CURDIR)/build/interop/jms/lib
	@javac -cp 'build/interop/jms/lib/*' -d build/interop/jms $<

build/interop/protonj2/ProtonJ2Client.class: tests/interop/protonj2/ProtonJ2Client.java tests/interop/protonj2/pom.xml
	@mvn --quiet --batch-mode --file tests/interop/protonj2/pom.xml dependency:copy-dependencies \
		-DoutputDirectory=$(CURDIR)/build/interop/protonj2/lib
	@javac -cp 'build/interop/protonj2/lib/*' -d build/interop/protonj2 $<

# Beside the environment: only the tests' client imports it.
build/interop/azure/azure:
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --upgrade --target build/interop/azure azure-servicebus==7.15.0
	@touch $@

build/interop/go_client: tests/interop/go/go_client.go tests/interop/go/go.mod tests/interop/go/go.sum
	@cd tests/interop/go && go build -o $(CURDIR)/$@ .

# Before the tests run: what has just been written may be "busy" for who runs it at once.
build/interop/proton_client: tests/interop/proton_client.cpp
	@mkdir -p build/interop
	@g++ -std=c++17 -O1 -o $@ $< -lqpid-proton-cpp

soak: setup
	@$(VENV)/bin/python -m tests.bench.killed
	@$(VENV)/bin/python -m tests.failover.chaos --seeds $(SEEDS) $(SOAK) topologies/chaos/*.yaml

simulate-soak: setup
	@$(VENV)/bin/python -m tests.simulation --count 50000
	@$(VENV)/bin/python -m tests.router.mqtt.walk $$(date +%s) --count 2000
	@$(VENV)/bin/python -m tests.topic.queues.walks $$(date +%s) --count 5000
	@$(VENV)/bin/python -m tests.simulation.evidence $$(date +%s) --count 500 --strangers

exhaustive: setup
	@$(VENV)/bin/python -m tests.topic.raft.search
	@$(VENV)/bin/python -m tests.topic.queues.transaction_search
	@$(VENV)/bin/python -m tests.exhaustive all

mutants: setup
	@$(VENV)/bin/python -m tests.mutants
	@$(VENV)/bin/python -m tests.topic.raft.mutants

clean:
	rm -rf $(VENV) tests/interop/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis build
	rm -f router/amqp/proton/_loops.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
