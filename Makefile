# Everything here needs Go, make and git, and tests jq: what more is needed is built from Go modules. Only e2e and
# node-image need Docker.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

# VERSION is stamped into bin/cvo: a tag, or a tag with the commits since, or the commit.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X github.com/cluster-version/cvo/pkg/cli.version=$(VERSION)

TESTFLAGS ?=
FUZZTIME ?= 20s
SEEDS ?= 500
ARCH ?= $(shell go env GOARCH)

# With a folder of real releases at hand, no test that needs it may be skipped.
ifdef CVO_TESTDATA
export CVO_TESTDATA := $(abspath $(CVO_TESTDATA))
export CVO_TESTDATA_REQUIRED := 1
endif

GOLANGCI_LINT := go tool -modfile=tools/go.mod golangci-lint

##@ Try it

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The demo is a binary that make becomes, so that Ctrl-C and a kill reach it and nothing is left behind.
.PHONY: demo
demo: build kube-tools ## Install and update the example platform on a control plane of its own (DEMO_FLAGS=--help)
	@CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o bin/demo ./test/demo
	@exec bin/demo $(DEMO_FLAGS)

##@ Build

.PHONY: build
build: crds ## Build bin/cvo, static, reproducible, with its version; bin/kubectl-cvo is the same as a plugin
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/cvo ./cmd/cvo
	@ln -sf cvo bin/kubectl-cvo
	@install -m 755 hack/kubectl_complete-cvo bin/kubectl_complete-cvo

.PHONY: image
image: ## Build the operator's image, the base of release images
	VERSION='$(VERSION)' hack/image.sh

.PHONY: example-image
example-image: ## Push the images of the example platform (PUSH=registry.example.com/platform, ARCH=); lists them in bin/example
	@[ -n "$(PUSH)" ] || { echo 'say where to: make example-image PUSH=registry.example.com/platform' >&2; exit 2; }
	CGO_ENABLED=0 GOOS=linux GOARCH=$(ARCH) go build -trimpath -ldflags '-s -w' -o bin/example-operator-linux-$(ARCH) ./examples/operator
	go run ./hack/exampleimage -binary bin/example-operator-linux-$(ARCH) -architecture $(ARCH) -to '$(PUSH)' -mappings bin/example

.PHONY: chart
chart: ## Pack the Helm chart, with the CRDs, into bin/chart
	VERSION='$(VERSION)' hack/chart.sh

.PHONY: kube-tools
kube-tools: ## Build etcd, kube-apiserver and kubectl into bin/kube, once (some minutes the first time)
	test/kube/build.sh etcd kube-apiserver kubectl

.PHONY: node-image
node-image: ## Build the image of kind nodes from Debian and Go modules, where the public one is out of reach
	test/e2e/node/build.sh

.PHONY: peers
peers: ## Build into bin/peers what tests exchange images and signatures with, once (some minutes the first time)
	test/peers/build.sh

.PHONY: helm
helm: ## Build into bin/peers the Helm that tests install the chart with, once (some minutes the first time)
	test/helm/build.sh

# A release carries the CRDs of the API module that go.mod pins; they are read from the module, not kept here.
.PHONY: crds
crds:
	@go generate ./manifests

.PHONY: generate
generate: ## Write generated files anew
	go generate ./...

##@ Test

# Of test/integration the gate runs an install, an update, a restart and the repair of drift.
MAIN_PATHS := ^(TestExamplePlatform|TestInventory|TestBudget|TestDrift)$$

.PHONY: test
test: crds kube-tools ## Run the tests that decide whether a change may land; CVO_TESTDATA=DIR adds those on real releases
	go test -timeout 20m $(TESTFLAGS) ./pkg/... ./cmd/... ./manifests/...
	go test -timeout 20m -run '$(MAIN_PATHS)' $(TESTFLAGS) ./test/integration

# Each ring continues after a failure of another, and the failures are listed at the end.
.PHONY: test-all
test-all: ## Run every test: test, race, outer and e2e, one after the other, whatever fails
	@failed=; for ring in test race outer e2e; do $(MAKE) $$ring || failed="$$failed $$ring"; done; \
	  [ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

# The race detector takes two to three times the time, and ten times where documents are parsed. Under it, hostile documents
# are short and real releases few; `make test` parses all of them.
.PHONY: race
race: crds kube-tools ## Run the tests of the packages under the race detector, which needs a C compiler
	CGO_ENABLED=1 go test -race -timeout 20m $(TESTFLAGS) ./pkg/... ./cmd/... ./manifests/...

.PHONY: outer
outer: crds kube-tools peers helm ## Run the tests of whole programs: integration, exchanges with other tools, docs, histories
	go test -timeout 45m $(TESTFLAGS) $$(go list ./test/... ./examples/... | grep -v '/test/e2e$$')

.PHONY: integration
integration: crds kube-tools ## Run only the tests of the built operator as a process against a real kube-apiserver
	go test -timeout 30m -count 1 $(TESTFLAGS) ./test/integration

.PHONY: e2e
e2e: crds ## Run the tests on a real cluster, made by kind in Docker (KIND_NODE_IMAGE, CVO_E2E_KEEP=1: docs/dev/e2e.md)
	@prepared=$$(test/e2e/prepare.sh) && set -- $$prepared && echo "node image: $$1, clusters side by side: $$2" && \
	  CVO_E2E=1 KIND_NODE_IMAGE=$$1 go test -timeout 60m -count 1 -v -parallel $$2 $(TESTFLAGS) ./test/e2e

.PHONY: property
property: crds kube-tools ## Try applying with SEEDS random histories against a real kube-apiserver, some under faults
	go test -timeout 120m -count 1 $(TESTFLAGS) ./test/property -args -property.seeds $(SEEDS)

.PHONY: fuzz
fuzz: ## Fuzz every parser of outside bytes for FUZZTIME each
	hack/fuzz.sh '$(FUZZTIME)'

.PHONY: bench
bench: crds kube-tools ## Measure the operator against a plain loader (BENCH_FLAGS=--scale, --plot=FILE, --help)
	go run ./test/bench $(BENCH_FLAGS)

.PHONY: bench-mirror
bench-mirror: crds ## Measure release mirror against a plain copy between two registries (BENCH_FLAGS=-latency=2ms, -help)
	go build -o bin/mirrorbench ./test/mirrorbench
	bin/mirrorbench $(BENCH_FLAGS)

##@ Check

.PHONY: verify
verify: verify-format vet lint verify-modules verify-generated verify-docs verify-words ## Run every check but the tests

.PHONY: lint
lint: crds ## Lint, which also checks the layers of packages
	$(GOLANGCI_LINT) run ./...

.PHONY: format
format: ## Format all Go files
	$(GOLANGCI_LINT) fmt

.PHONY: verify-format
verify-format:
	$(GOLANGCI_LINT) fmt --diff

.PHONY: vet
vet: crds
	go vet ./...

.PHONY: verify-modules
verify-modules:
	go mod tidy -diff
	go mod verify
	cd tools && go mod tidy -diff && go mod verify

.PHONY: verify-generated
verify-generated:
	hack/verify-generated.sh

.PHONY: verify-docs
verify-docs:
	hack/verify-docs.sh

.PHONY: verify-words
verify-words:
	hack/verify-words.sh

##@ Clean

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin .cache manifests/0000_00_cluster-version-operator_01_*.crd.yaml
