# Everything there is to build, test and check. `make` alone lists it.
#
# Go's build cache decides what is stale: every target runs `go build` or
# `go test`, which is quick when nothing changed.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# A kube-apiserver build fills two cores and several GiB: one at a time.
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

# The same flags for everyone: no go.mod edited on the way (-mod=mod), no
# relink of every binary after each commit (buildvcs), no workspace (it
# excludes -modfile).
export GOFLAGS := -buildvcs=false
export GOWORK := off

# The library against the newest minor that it supports. go.mod itself names the oldest.
NEWEST := -modfile=go-0.37.mod

# Packages whose tests need no API server: the library, and test support.
UNIT := ./pkg/... $(patsubst %/,./%/...,$(filter-out test/integration/ test/e2e/ test/upgrade/ test/bench/,$(wildcard test/*/)))

OURS  := bin/kube-apiserver-v1.37 bin/kube-apiserver-v1.36 bin/mixed-cluster
STOCK := bin/stock-kube-apiserver-v1.37 bin/stock-kube-apiserver-v1.36
TOOLS := bin/kubectl bin/kube-controller-manager-v1.37

# `go test` vets by itself what it tests. Where `make verify` has vetted the
# same packages, and a race or second build would vet their dependencies anew,
# it is turned off.
NOVET := -vet=off

STEP := hack/step.sh
LINT := go tool -modfile=$(CURDIR)/hack/tools/go.mod golangci-lint

FORCE:
.PHONY: FORCE help build stock tools unit unit-race unit-newest unit-cmd sim integration e2e upgrade upgrade-test test link-check verify fix bench bench-servers demo generate tidy clean

help: ## List the targets
	@awk -F ':.*## ' '/^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Build

build: $(OURS) ## Build our kube-apiservers and mixed-cluster into bin/ (first time: about 9 minutes on two cores)

stock: $(STOCK) ## Build the unchanged kube-apiservers that end-to-end tests compare with

tools: $(TOOLS) ## Build kubectl and kube-controller-manager for end-to-end tests

bin/kube-apiserver-v%: FORCE
	@hack/build-kube.sh $* ./kube-apiserver $@

bin/mixed-cluster: FORCE
	@hack/build-kube.sh 1.37 ./mixed-cluster $@

bin/stock-kube-apiserver-v%: FORCE
	@hack/build-kube.sh $* k8s.io/kubernetes/cmd/kube-apiserver $@

bin/kube-controller-manager-v%: FORCE
	@hack/build-kube.sh $* k8s.io/kubernetes/cmd/kube-controller-manager $@

bin/kubectl: FORCE
	@hack/build-kube.sh 1.37 k8s.io/kubernetes/cmd/kubectl $@

##@ Test

unit: ## Unit tests: the quick inner loop
	@$(STEP) "unit tests" go test -timeout=2m $(UNIT)

unit-race: ## Unit tests with the race detector
	@$(STEP) "unit tests with the race detector" go test $(NOVET) -race -timeout=3m $(UNIT)

unit-newest: ## Unit tests against the newest k8s.io/* that the library supports
	@$(STEP) "unit tests against k8s.io/* of go-0.37.mod" go test $(NOVET) -timeout=2m $(NEWEST) $(UNIT)

unit-cmd: ## Unit tests of the programs, against each Kubernetes minor
	@$(STEP) "unit tests of cmd, Kubernetes 1.37" go test -C cmd $(NOVET) -timeout=2m ./...
	@$(STEP) "unit tests of cmd, Kubernetes 1.36" \
		go test -C cmd -modfile=go-1.36.mod -tags=kubernetes_1_36 $(NOVET) -timeout=2m ./...

SEEDS := 300
FIRST := 1
sim: ## Simulate SEEDS=300 control planes in virtual time, from seed FIRST=1 on; or SEED=n alone, and tell all that happens
	@SEEDS=$(SEEDS) FIRST=$(FIRST) SEED=$(SEED) $(STEP) "simulation" go test $(NOVET) $(if $(SEED),-v) -timeout=24h ./test/sim

integration: ## Integration tests with the race detector: API servers in process, with embedded etcd
	@$(STEP) "integration tests with the race detector" go test $(NOVET) -race -timeout=15m ./test/integration/...

e2e: $(OURS) $(STOCK) $(TOOLS) ## End-to-end tests on real binaries, which it builds first
	@$(STEP) "end-to-end tests" go test $(NOVET) -count=1 -timeout=30m ./test/e2e/...

upgrade: $(OURS) $(TOOLS) ## A rolling upgrade under load that harms no client
	@$(STEP) "rolling upgrade" go test $(NOVET) -count=1 -timeout=5m ./test/upgrade

# In the directory itself go test passes on what a test prints.
upgrade-test: $(OURS) $(STOCK) $(TOOLS) ## The same there and back, with the proxy off and with stock servers: a table (8 minutes)
	@$(STEP) "rolling upgrades" go test -C test/upgrade $(NOVET) -count=1 -timeout=30m -run='^TestReport$$' -args -full

test: unit-race unit-newest unit-cmd sim integration e2e upgrade ## All tests

link-check: ## Build a server in a module of its own, by the letter of README.md
	@$(STEP) "link by README.md" hack/link-check.sh

verify: ## Check form, vet, lint, house rules, modules and generated files
	@hack/verify.sh

fix: ## Let gofmt and the linter mend what they can
	@gofmt -w cmd hack pkg test
	@$(LINT) run --fix ./...
	@cd cmd && $(LINT) run --fix ./...

bench: ## Benchmarks, upstream's beside ours
	@go test -run='^$$' -bench=. -benchmem $(UNIT) $(patsubst %,./%/...,$(wildcard test/bench))

bench-servers: $(OURS) $(STOCK) ## Merged discovery on real servers, beside stock ones; builds what it needs (ARGS=--crds=2000)
	@go run ./test/bench/servers $(ARGS)

##@ Use and upkeep

demo: ## Show a mixed-version cluster at work; builds what it needs (ARGS=--exit: stop it at the end)
	@hack/demo.sh $(ARGS)

generate: ## Write the golden files anew
	@hack/generate.sh

tidy: ## Tidy every module, and make go-0.37.mod anew from go.mod
	@hack/tidy.sh

clean: ## Remove what was built; Go's caches stay
	rm -rf bin .cache
