# All targets need Go, make, bash 4 and git; the tests also need flock, `make outer` jq, `make race` a C compiler, and tests of alerts
# Prometheus. Other tools are built from Go modules. Only e2e and node-image need Docker.

SHELL := bash
# With -p, bash ignores BASH_ENV and SHELLOPTS, which could end a recipe early with 0. The scripts that it calls do not see them.
unexport BASH_ENV SHELLOPTS
.SHELLFLAGS := -p -euo pipefail -c
.DEFAULT_GOAL := help
# Targets never run in parallel: some compare files that others generate.
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules

# Everything is compiled without cgo and with -trimpath, so that clones share what is in Go's cache. Only `make race` needs cgo. GOFLAGS keeps
# what the user has set.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(shell go env GOFLAGS) -trimpath)
# Flags that come with the environment must not select tests unnoticed, nor replace their execution.
$(foreach flag,-run= -skip= -short .run= .skip= .short -exec= -count= .count=,$(if $(findstring $(flag),$(GOFLAGS)),$(error GOFLAGS=$(GOFLAGS) selects tests: use TESTFLAGS)))
$(if $(filter -n --n -n=true --n=true,$(GOFLAGS)),$(error GOFLAGS=$(GOFLAGS) runs nothing: use make -n))
# With -i, a failed recipe would pass; with -t, none would run.
$(foreach flag,i t,$(if $(findstring $(flag),$(filter-out --%,$(firstword -$(MAKEFLAGS)))),$(error MAKEFLAGS=$(MAKEFLAGS) hides failures: run make without -$(flag))))
# A workspace of the user would change the modules, and CDPATH the folder in which a script works.
export GOWORK := off
export CDPATH :=
# A hook of git sets these, and then git would ignore the folder in which tests run it.
unexport GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_PREFIX
# The programs under test read these. A user of cvo, or a pod that runs CI, may have set them.
unexport CVO_PROPERTY_KUBECONFIG CVO_NAME CVO_NAMESPACE CVO_PAYLOAD_RETRIEVAL CVO_BRING_YOUR_OWN_NETWORK CLUSTER_PROFILE EXCLUDE_MANIFESTS PAYLOAD_OVERRIDE
unexport POD_NAME POD_NAMESPACE POD_IP NODE_NAME OPERATOR_IMAGE RELEASE_VERSION

# VERSION is stamped into bin/cvo: a tag, or a tag with the commits since, or the commit.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X github.com/cluster-version/cvo/pkg/cli.version=$(VERSION)

# With this overlay the linker drops all methods that nothing calls: a fifth of the binary.
OVERLAY := .cache/overlay/overlay.json

TESTFLAGS ?=
override PKG := $(strip $(PKG))
FUZZTIME ?= 20s
SEEDS ?= 500
N ?= 3
ARCH ?= $(shell go env GOARCH)

# Tests on real releases run if CVO_TESTDATA names a folder with them.
ifdef CVO_TESTDATA
override CVO_TESTDATA := $(shell CDPATH= cd -- "$(CVO_TESTDATA)" 2>/dev/null && pwd || echo "$(CVO_TESTDATA)")
ifneq ($(shell test -d "$(CVO_TESTDATA)/payloads" || [ "$(or $(MAKECMDGOALS),help)" = help ] && echo found),found)
$(error CVO_TESTDATA=$(CVO_TESTDATA): this folder has no payloads: name the folder that docs/dev/testing.md describes, or unset the variable)
endif
export CVO_TESTDATA
endif

# Recipes call the built tools. `go tool` builds them, but exits with 0 if a signal kills them, for example if memory is short.
tool = "$$(go tool -n -modfile=tools/go.mod $(1))"
GOLANGCI_LINT := $(call tool,golangci-lint)
GREMLINS := $(call tool,gremlins)
GOTESTSUM := $(call tool,gotestsum)

##@ Try it

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# exec replaces the shell with the demo, so a signal that make passes on reaches the demo, and nothing is left behind.
.PHONY: demo
demo: build kube-tools ## Install and update the example platform on a control plane of its own (DEMO_FLAGS=--help)
	@echo 'building bin/demo and bin/cvo-node (about 1 minute the first time)' >&2
	@CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o bin/ ./test/demo ./cmd/cvo-node
	@exec bin/demo $(DEMO_FLAGS)

##@ Build

.PHONY: build
build: crds ## Build bin/cvo, static, reproducible, with its version; bin/kubectl-cvo is the same program as a plugin of kubectl
	@echo 'building bin/cvo (about 3 minutes the first time)' >&2
	@go run ./hack/overlay $(OVERLAY)
	CGO_ENABLED=0 go build -trimpath -overlay $(OVERLAY) -ldflags '$(LDFLAGS)' -o bin/cvo ./cmd/cvo
	@ln -sf cvo bin/kubectl-cvo
	@install -m 755 hack/kubectl_complete-cvo bin/kubectl_complete-cvo

.PHONY: image
image: ## Build the operator's image, the base of release images, and the component image of the node stage
	VERSION='$(VERSION)' hack/image.sh

.PHONY: example-image
example-image: crds ## Push the images of the example platform, with the node stage (PUSH=registry.example.com/platform, ARCH=); lists them in bin/example
	@[ -n "$(PUSH)" ] || { echo 'set PUSH: make example-image PUSH=registry.example.com/platform' >&2; exit 2; }
	CGO_ENABLED=0 GOOS=linux GOARCH=$(ARCH) go build -trimpath -ldflags '-s -w' -o bin/example-operator-linux-$(ARCH) ./examples/operator
	CGO_ENABLED=0 GOOS=linux GOARCH=$(ARCH) go build -trimpath -ldflags '-s -w' -o bin/cvo-node-linux-$(ARCH) ./cmd/cvo-node
	go run ./hack/exampleimage -binary bin/example-operator-linux-$(ARCH) -architecture $(ARCH) -to '$(PUSH)' -mappings bin/example
	stage=$$(go run ./hack/image -node -binary $(ARCH)=bin/cvo-node-linux-$(ARCH) -to-image '$(PUSH)/machine-config-operator:example'); \
	  for mapping in bin/example/*.mapping; do echo "machine-config-operator=$$stage" >>"$$mapping"; done

.PHONY: chart
chart: ## Pack the Helm chart, with the CRDs, into bin/chart
	VERSION='$(VERSION)' hack/chart.sh

.PHONY: kube-tools
kube-tools: ## Build etcd, kube-apiserver and kubectl into bin/kube, once (some minutes the first time)
	test/kube/build.sh etcd kube-apiserver kubectl

# kwok plays the kubelets of the nodes.
.PHONY: node-tools
node-tools: kube-tools
	@test/kube/build.sh kube-controller-manager kube-scheduler kwok

.PHONY: node-image
node-image: ## Build the image of kind nodes from Debian and Go modules, if the public one cannot be pulled
	test/e2e/node/build.sh

.PHONY: peers
peers: ## Build the programs for `make interop` into bin/peers, once (some minutes the first time)
	test/peers/build.sh

.PHONY: helm
helm: ## Build into bin/peers the Helm that tests install the chart with, once (some minutes the first time)
	CVO_PEERS_MODULE=test/helm test/peers/build.sh helm

.PHONY: modules
modules:
	@hack/download.sh

# A release carries the CRDs of the API module that go.mod pins, with descriptions. The files in manifests/ have none.
.PHONY: crds
crds: modules
	@go generate ./manifests

.PHONY: generate
generate: ## Regenerate all generated files
	go generate ./...

##@ Test

# Packages that test whole programs. Most of them take minutes. `make test` runs of test/docs what needs no other program, of
# test/integration only MAIN_PATHS, and of test/nodes only NODE_PATHS; `make outer`, `property`, `interop` and `e2e` run all. They run with
# -count 1, because Go's test cache does not track the programs that they build.
WHOLE := chart|demo|docs|e2e|image|integration|interop|nodebench|nodes|property
MODULE := github.com/cluster-version/cvo
# The packages with the longest tests come first, so that others run in parallel with them.
LIST := go list ./pkg/cli ./pkg/install/uninstall ./pkg/apply ./... | grep -vE '^$(MODULE)/test/($(WHOLE))$$'
PACKAGES = $$($(LIST))
# `make test` runs these packages without Go's test cache, because their tests build programs, or run scripts or installed programs.
BUILDERS := cmd/cvo|hack|pkg/operator/clustermetrics|pkg/update/metrics/source|test/e2e/cluster|test/e2e/platform|test/env|test/monitoring|test/operators/actor
CACHED = $$($(LIST) | grep -vE '^$(MODULE)/($(BUILDERS))$$')
# Most tests wait for control planes, so more packages than cores run in parallel.
PROCESSES = $(shell cores=$$(getconf _NPROCESSORS_ONLN); echo $$((cores + (cores + 1) / 2)))
UNCACHED := ./test/docs $(addprefix ./,$(subst |, ,$(BUILDERS)))
# A run of selected packages leaves the results of all packages alone.
RESULTS := .cache/test$(if $(PKG),-selected)
# Of test/integration, `make test` runs the main paths: an install, an update, a restart, the repair of drift, requests that are
# rejected or whose gates fail and recover, an uninstall, and retrieval through mirrors. The rest belongs to make outer.
MAIN_PATHS := ^(TestExamplePlatformInstallsAndUpdates|TestRealReleasesInstallAndUpdate|TestInventoryKeepsDroppedObjects|TestKilledOperatorContinues|TestDriftIsRepairedByOneWrite|TestRequestsAreAnsweredInTheClusterVersion|TestUninstallStopsTheLeaderAndKeepsThePlatform|TestLocalRegistryWithoutTLS|TestUpdateUsesTheClustersOwnConfiguration)$$
# Of test/nodes, `make test` runs an update of a pool with the release and alone, a drain, a failure and its repair, a restart, and what only
# these tests decide: the permissions of the stage and what its definitions reject.
NODE_PATHS := ^(TestOperatorInstallsAndUpdatesTheNodeStage|TestPoolsUpdateWithinMaxUnavailable|TestControlPlaneHoldsTheReleaseBack|TestRefusedEvictionsAreRetriedWhenTheBudgetChanges|TestBrokenConfigStopsAndItsDeletionRepairs|TestRestartedProcessesContinue|TestReleasedNodeLeavesTheStage|TestDaemonsReadConfigsInUse|TestStolenDaemonTokenIsLimitedToItsNode|TestAccountsCannotBecomeAdministrators|TestGuardPrecedesRoles|TestPodsExceedThePodSecurityStandardsOnlyWhereTheyMust|TestPodsAreOnTheNodesOfTheirRole|TestDefinitionRejectsInvalidJobs|TestDefinitionRejectsPoliciesThatCannotBeRead)$$

# gotest runs tests, lists the failed ones at the end, and writes the results to a file for hack/results. With ran after it, it also fails if
# no test ran.
gotest = $(GOTESTSUM) --format $(or $(2),standard-quiet) --jsonfile $(RESULTS)/$(1).json --hide-summary skipped --
ran = && go run ./hack/results ran $(RESULTS)/$(1).json

# failures lists the failed tests, from the results of several runs of gotest: those in PARTS, else all.
failures = [ $$failed -eq 0 ] || { echo 'what failed:'; go run ./hack/results failed $(or $(PARTS),$(RESULTS)/*.json) | sed 's/^/  /' | grep . || echo '  no test: see the error above'; echo 'how to run one of them alone: docs/dev/testing.md, "If something fails"'; }

# interrupted ends a recipe after Ctrl-C. gotestsum lists the tests that it interrupts as failed.
interrupted = trap 'echo "interrupted: some of the tests listed as failed had not ended" >&2; exit 130' INT

# lock fails while other tests run in this clone, because all rings write and delete the same results. The shell and the processes that it
# starts hold the lock. A process may need some seconds to end after its ring.
LOCK_WAIT := 10
lock = mkdir -p $(dir $(RESULTS)); exec 9>$(RESULTS).lock; \
  flock -n 9 || { echo 'waiting up to $(LOCK_WAIT) s for the end of other tests in this clone' >&2; flock -w $(LOCK_WAIT) 9; } || { echo 'other tests run in this clone, or processes of an earlier run have not ended: wait, or use another clone' >&2; exit 2; }

# Before anything is built, an error names a pattern in PKG that selects no package.
.PHONY: packages
packages:
	@hack/packages.sh $(PKG)

# The rings of whole programs refuse PKG, because they would run all their packages.
.PHONY: whole
whole:
	@[ -z "$(PKG)" ] || { echo 'this target runs all its packages: PKG selects packages in make check, test, race, flakes and mutate' >&2; exit 2; }

# With -short, some packages skip all their tests, so `results ran` gets -skipped.
.PHONY: check
check: FOLDERS = $(if $(PKG),$$(go list -f '.{{slice .Dir (len .Module.Dir)}}' $(PKG)))
check: packages commands crds verify-format ## Check the format, vet, and run the tests that need no control plane, for each edit (PKG=)
	@echo 'vet and tests (22 s without a change, up to 3 minutes after one)'
	go vet $(or $(PKG),./...)
	@packages="$(or $(PKG),$(PACKAGES))"; $(if $(ALL_RINGS),results=$(RESULTS); mkdir -p "$$results",results=$$(mktemp -d); trap 'rm -rf "$$results"' EXIT); $(interrupted); \
	  $(GOTESTSUM) --format standard-quiet --hide-summary skipped --jsonfile "$$results/check.json" -- -short -vet=off $$packages $(TESTFLAGS) && \
	  go run ./hack/results ran -skipped "$$results/check.json"

# Pages of the documentation run jq.
.PHONY: jq
jq:
	@command -v jq >/dev/null || { echo 'jq is missing: install it (on Debian: apt-get install jq)' >&2; exit 2; }

# All rings need flock. The shell would take a pattern in TESTFLAGS without quotation marks for a command.
.PHONY: commands
commands:
	@command -v flock >/dev/null || { echo 'flock is missing: install it (on Debian: apt-get install util-linux)' >&2; exit 2; }
	@printf %s "$${TESTFLAGS:-}" | grep -qzxE "([^|&;()<>*'\"]|'[^']*'|\"[^\"]*\")*" || [ -z "$${TESTFLAGS:-}" ] || { \
	  echo "TESTFLAGS=$$TESTFLAGS: quote patterns in it, such as TESTFLAGS='-run \"TestA|TestB\"'" >&2; exit 2; }

# `make verify` vets the tests, so `go test` need not. PKG may select tests of test/, which build programs whose sources the cache of
# `go test` does not track.
.PHONY: test
test: PARTS = $(patsubst %,$(RESULTS)/%.json,packages $(if $(PKG),,uncached paths))
test: packages commands crds kube-tools ## Run the tests that decide whether a change may land (PKG=./pkg/...); CVO_TESTDATA=DIR adds those on real releases
	@$(lock); packages="$(or $(PKG),$(CACHED))"; $(if $(ALL_RINGS),,rm -rf $(RESULTS);) failed=0; $(interrupted); \
	  $(if $(PKG),,echo "part 1 of 3: $$(wc -w <<<"$$packages") packages (2 to 10 minutes on two cores; the first results come after up to 4 minutes)";) \
	  $(call gotest,packages) -p $(PROCESSES) -vet=off -timeout 20m $(if $(PKG),-count 1) $$packages $(TESTFLAGS) || failed=1; \
	  $(if $(PKG),,\
	  echo 'part 2 of 3: tests that build programs, and the documentation (2 to 5 minutes)'; \
	  $(call gotest,uncached) -vet=off -timeout 10m -count 1 $(UNCACHED) $(TESTFLAGS) || failed=1; \
	  echo 'part 3 of 3: an install, an update and other main paths with the built cvo (2 to 5 minutes)'; \
	  $(call gotest,paths) -vet=off -timeout 20m -count 1 -run '$(MAIN_PATHS)|$(NODE_PATHS)' ./test/integration ./test/nodes $(TESTFLAGS) || failed=1;) \
	  [ $$failed -ne 0 ] || go run ./hack/results ran $(PARTS) || failed=1; \
	  go run ./hack/results slowest $(PARTS) || true; $(failures); exit $$failed

# Each ring runs even if another failed. At the end, the times and the failed tests are listed. With ALL_RINGS, rings keep each other's
# results.
.PHONY: test-all
test-all: whole commands jq ## Run all rings: check, test, race, outer, property, interop, e2e and macos, sequentially, even if one fails
	@$(interrupted); ($(lock); rm -rf $(RESULTS)); times= failed=0; for ring in check test race outer property interop e2e macos; do \
	    start=$$SECONDS result=passed; \
	    $(MAKE_COMMAND) $$ring ALL_RINGS=1 || { result=failed failed=1; }; \
	    times+="  $$ring $$result after $$((SECONDS - start)) s"$$'\n'; \
	  done; printf 'the rings:\n%s' "$$times"; \
	  $(failures); exit $$failed

# Packages that start goroutines or synchronize them, themselves or in their tests.
GOROUTINES := '"(testing/)?sync|/errgroup"|[.]Go[(]|^[[:space:]]+go [a-zA-Z.]+[(]|[.]Parallel[(]'
CONCURRENT = $(shell grep -rlE --include='*.go' $(GOROUTINES) pkg internal cmd manifests | xargs -n 1 dirname | sort -u | sed 's|^|./|')

# The race detector costs two to three times the time, and ten times where documents are parsed. Under it, tests parse only a few real
# releases. A process that the detector watches sleeps for a second before it exits unless GORACE sets another time.
.PHONY: race
race: packages commands crds kube-tools ## Run the tests of packages with goroutines under the race detector, which needs a C compiler (PKG=)
	@$(lock); CGO_ENABLED=1 GORACE=atexit_sleep_ms=50 $(call gotest,race) -race -vet=off -timeout 20m $(or $(PKG),$(CONCURRENT)) $(TESTFLAGS) $(call ran,race)

# Packages with tests that try more cases in the outer ring, beside WHOLE. pkg/cli and its subfolders count only if they name the ring: their
# hostile documents only show that a command uses a reader, whose own package tries all of them.
MORE = $(shell { grep -rlE --include='*_test.go' 'ring[.](Outer|Stride|NeedOuter)' .; \
  grep -rlE --include='*_test.go' --exclude-dir=cli 'fixture[.](Often|HostileYAML)' .; } | xargs -n 1 dirname | sort -u | grep -vE '^./test/($(WHOLE))$$')

# The longest packages come first, as above. test/property is a ring of its own.
.PHONY: outer
outer: whole commands jq crds node-tools helm ## Run the tests of whole programs: integration, nodes, Helm, docs, the benchmark of nodes
	@$(lock); packages=$$(go list ./test/integration ./test/nodes ./test/image ./test/... | grep -E '/test/($(WHOLE))$$' | grep -vE '/(e2e|interop|property)$$'); failed=0; $(interrupted); \
	  CVO_RING=outer $(call gotest,outer) -vet=off -timeout 45m -count 1 $$packages $(TESTFLAGS) || failed=1; \
	  CVO_RING=outer $(call gotest,more) -vet=off -timeout 20m -count 1 $(MORE) $(TESTFLAGS) || failed=1; \
	  [ $$failed -ne 0 ] || go run ./hack/results ran $(RESULTS)/outer.json $(RESULTS)/more.json || failed=1; exit $$failed

.PHONY: flakes
flakes: ## Run make test N times on a busy machine and list the failed tests (N=3, PKG=./pkg/...)
	PKG='$(PKG)' hack/flakes.sh '$(N)'

.PHONY: interop
interop: whole commands peers ## Exchange images and signatures with cosign, crane, skopeo, Fulcio and Rekor
	@$(lock); $(call gotest,interop) -timeout 15m -count 1 ./test/interop $(TESTFLAGS) $(call ran,interop)

.PHONY: integration
integration: whole commands crds kube-tools ## Run only the tests of the built operator as a process against a real kube-apiserver
	@$(lock); CVO_RING=outer $(call gotest,integration) -timeout 45m -count 1 ./test/integration $(TESTFLAGS) $(call ran,integration)

# An older API server with the same etcd. Without watch lists, clients list before they watch. The gates are fields of
# pods that the tests set and that this version serves on request only.
COMPAT := $(CURDIR)/bin/kube-compat
COMPAT_ENV := CVO_KUBE_BIN="$(COMPAT)" CVO_KUBE_FEATURE_GATES=ImageVolume=true,HostnameOverride=true,EnvFiles=true,ContainerRestartRules=true

.PHONY: kube-compat
kube-compat: kube-tools
	CVO_KUBE_BIN="$(COMPAT)" CVO_KUBE_MODULE=test/kube/compat test/kube/build.sh kube-apiserver
	ln -sf ../kube/etcd "$(COMPAT)/etcd"

.PHONY: compat
compat: whole commands crds kube-compat ## Run the tests of applying, property and integration against kube-apiserver 1.34, with watch lists on and off
	@$(lock); $(interrupted); failed=0; for lists in true false; do \
	  CVO_RING=outer KUBE_FEATURE_WatchListClient=$$lists $(COMPAT_ENV) \
	    $(call gotest,compat-$$lists) -timeout 60m -count 1 ./pkg/apply/... ./test/property ./test/integration $(TESTFLAGS) $(call ran,compat-$$lists) || failed=1; \
	done; exit $$failed

.PHONY: e2e
e2e: whole commands crds ## Run the tests on a real cluster, made by kind in Docker (KIND_NODE_IMAGE, CVO_E2E_KEEP=1: docs/dev/e2e.md)
	@$(lock); prepared=$$(test/e2e/prepare.sh) && set -- $$prepared && echo "node image: $$1, parallel clusters: $$2" && \
	  CVO_E2E=1 KIND_NODE_IMAGE=$$1 $(call gotest,e2e,standard-verbose) -timeout 90m -count 1 -parallel $$2 ./test/e2e $(TESTFLAGS) $(call ran,e2e)

# People make releases on macOS. Nothing runs the tests there.
.PHONY: macos
macos: crds ## Vet the command line for macOS, which compiles it with its dependencies
	GOOS=darwin go vet ./cmd/cvo ./pkg/cli

.PHONY: property
property: whole commands crds kube-tools ## Try applying with SEEDS random histories against a real kube-apiserver, some under faults
	@$(lock); $(call gotest,property) -timeout 120m -count 1 $(TESTFLAGS) ./test/property -args -property.seeds $(SEEDS) $(call ran,property)

.PHONY: fuzz
fuzz: ## Fuzz every parser of outside bytes for FUZZTIME each
	hack/fuzz.sh '$(FUZZTIME)'

.PHONY: mutate
mutate: packages crds ## List the mutations of a package that its tests do not notice (PKG=./pkg/engine/gate)
	@[ -n "$(PKG)" ] || { echo 'name a package: make mutate PKG=./pkg/engine/gate' >&2; exit 2; }
	$(GREMLINS) unleash --output-statuses lctr --workers 1 --timeout-coefficient 20 $(PKG)

.PHONY: bench
bench: crds kube-tools ## Measure the operator against a plain loader (BENCH_FLAGS=--scale, --plot=FILE, --help)
	go run ./test/bench $(BENCH_FLAGS)

.PHONY: bench-mirror
bench-mirror: crds ## Measure release mirror against a plain copy between two registries (BENCH_FLAGS=-latency=2ms, -help)
	go build -o bin/mirrorbench ./test/mirrorbench
	bin/mirrorbench $(BENCH_FLAGS)

.PHONY: bench-nodes
bench-nodes: crds node-tools ## Measure the node stage on 50 and on 500 nodes, and fail if a figure misses its budget (BENCH_FLAGS=--nodes=N, --help)
	go build -o bin/nodebench ./test/nodebench
	bin/nodebench $(BENCH_FLAGS)

##@ Check

# verify-generated comes first: lint generates the CRDs, so the comparison would miss one that is out of date in the commit.
.PHONY: verify
verify: verify-generated verify-format lint verify-modules verify-words ## Check format, lint, modules, generated files and words

# Go's cache keeps the linter for all clones.
.PHONY: golangci-lint
golangci-lint: .cache/golangci-lint
.cache/golangci-lint: tools/go.mod
	@echo 'golangci-lint: building it takes up to 5 minutes on two cores, unless it is in the cache of Go'
	@cd tools && ../hack/download.sh
	@$(GOLANGCI_LINT) version
	@mkdir -p $(@D) && touch $@

.PHONY: lint
lint: crds golangci-lint ## Lint, which also checks the layers of packages
	$(GOLANGCI_LINT) run ./...

.PHONY: format
format: golangci-lint ## Format all Go files
	$(GOLANGCI_LINT) fmt

.PHONY: verify-format
verify-format: golangci-lint
	@$(GOLANGCI_LINT) fmt --diff $(FOLDERS) || { echo 'run make format' >&2; exit 1; }

# `go mod tidy` also reads what the tests of dependencies import. For test/peers, these are modules that not every proxy serves.
.PHONY: verify-modules
verify-modules:
	@files=$$(git ls-files --cached --others --exclude-standard '*go.mod' ':!test/peers'); for file in $$files; do \
	  echo "checking $$file"; (cd "$$(dirname "$$file")"; go mod tidy -diff); done

.PHONY: verify-generated
verify-generated:
	hack/verify-generated.sh

.PHONY: verify-words
verify-words:
	hack/verify-words.sh

##@ Clean

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin .cache manifests/described/*.yaml
