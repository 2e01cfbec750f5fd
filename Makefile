# Targets of the project: `make help` lists them. `make demo` and `make test`
# install what they need.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

export GOTOOLCHAIN := local
export CGO_ENABLED ?= 0
# One set of flags for vet, tests and programs, so that each package is compiled once.
export GOFLAGS := -trimpath -buildvcs=false

BIN := $(CURDIR)/bin
TOOLS := $(CURDIR)/.cache/tools
GOLANGCI := $(TOOLS)/golangci-lint-2.15.0
GOFUMPT := $(TOOLS)/gofumpt-0.12.0
COLLECTOR := $(TOOLS)/otelcol-0.150.0
COSIGN := $(TOOLS)/cosign-3.1.3
VERSITYGW := $(TOOLS)/versitygw-1.8.0
WEBAUTHN := $(TOOLS)/webauthn-0.18.2
OIDC := $(TOOLS)/oidc-3.52.0-2
NFPM := $(TOOLS)/nfpm-2.45.1
CYCLONEDX := $(TOOLS)/cyclonedx-gomod-1.10.0
PACKAGERS := $(NFPM) $(CYCLONEDX)
COMMIT := $(shell git rev-parse --short=12 HEAD 2>/dev/null)
PROGRAMS := bailiwick bailiwickd bailiwick-deploy bailiwick-launch bailiwick-worker bailiwick-fetch bailiwick-toolhost bailiwick-mcp bailiwick-web bailiwick-tool bailiwick-verify

.PHONY: help build dist install uninstall tools static check race plain full agents browser system quick test demo demo-agent prove bench soak kills mixed mutants model honest fuzz vm setup clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

build: ## build the programs into bin/
	@mkdir -p $(BIN)
	go build -ldflags "-X github.com/bailiwick-dev/bailiwick/api.commit=$(COMMIT)" -o $(BIN)/ $(addprefix ./cmd/,$(PROGRAMS))

DIST ?= $(CURDIR)/dist
dist: build $(PACKAGERS) ## build the packages, deb and rpm for amd64 and arm64, into dist/ (VERSION=, ARCHES=)
	@BIN=$(BIN) NFPM=$(NFPM) CYCLONEDX=$(CYCLONEDX) scripts/dist $(DIST) $(PROGRAMS)

PREFIX ?= /usr/local
install: build ## install what was built in PREFIX, below DESTDIR if that is set
	$(BIN)/bailiwick-deploy install --prefix $(PREFIX) $(if $(DESTDIR),--root $(DESTDIR))

uninstall: ## remove what install put into PREFIX; data and accounts stay
	$(BIN)/bailiwick-deploy remove --prefix $(PREFIX)

setup: ## install the Debian packages that the tests need beside Go (root or sudo)
	@scripts/setup

$(GOLANGCI):
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	mv $(TOOLS)/golangci-lint $@

$(GOFUMPT):
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) go install mvdan.cc/gofumpt@v0.12.0
	mv $(TOOLS)/gofumpt $@

# A module of its own, with its checksums: nothing of it is a dependency of the programs.
$(COLLECTOR): e2e/collector/go.mod e2e/collector/go.sum e2e/collector/main.go
	@mkdir -p $(TOOLS)
	cd e2e/collector && go build -ldflags "-s -w" -o $@ .

# Likewise, as it is: the tool that others verify statements with.
$(COSIGN): e2e/cosign/go.mod e2e/cosign/go.sum
	@mkdir -p $(TOOLS)
	cd e2e/cosign && go build -ldflags "-s -w" -o $@ github.com/sigstore/cosign/v3/cmd/cosign

$(VERSITYGW): e2e/versitygw/go.mod e2e/versitygw/go.sum
	@mkdir -p $(TOOLS)
	cd e2e/versitygw && go build -ldflags "-s -w" -o $@ github.com/versity/versitygw/cmd/versitygw

$(WEBAUTHN): e2e/webauthn/go.mod e2e/webauthn/go.sum e2e/webauthn/main.go
	@mkdir -p $(TOOLS)
	cd e2e/webauthn && go build -ldflags "-s -w" -o $@ .

$(OIDC): e2e/oidc/go.mod e2e/oidc/go.sum e2e/oidc/main.go
	@mkdir -p $(TOOLS)
	cd e2e/oidc && go build -ldflags "-s -w" -o $@ .

$(NFPM): packaging/nfpm/go.mod packaging/nfpm/go.sum
	@mkdir -p $(TOOLS)
	cd packaging/nfpm && go build -ldflags "-s -w" -o $@ github.com/goreleaser/nfpm/v2/cmd/nfpm

$(CYCLONEDX): packaging/cyclonedx/go.mod packaging/cyclonedx/go.sum
	@mkdir -p $(TOOLS)
	cd packaging/cyclonedx && go build -ldflags "-s -w" -o $@ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod

LINT := $(GOLANGCI) $(GOFUMPT)
FOREIGN := $(COLLECTOR) $(COSIGN) $(VERSITYGW) $(WEBAUTHN) $(OIDC) $(PACKAGERS)

tools: ## build the tools of the checks and the tests into .cache/tools, keyed by version
	@$(MAKE) --no-print-directory -j2 $(LINT) $(FOREIGN)

static: $(LINT) ## format, vet, lint, tidy
	@unformatted=$$($(GOFUMPT) -l .); test -z "$$unformatted" || { echo "gofumpt would change: $$unformatted" >&2; exit 1; }
	@scripts/commit-msg --new
	go mod tidy -diff
	go vet ./...
	GOOS=darwin go vet ./cmd/bailiwick ./cmd/bailiwick-deploy ./cmd/bailiwick-verify
	GOOS=windows go vet ./cmd/bailiwick ./cmd/bailiwick-deploy ./cmd/bailiwick-verify
	GOARCH=arm64 go vet ./internal/worker/jail
	$(GOLANGCI) run ./...

# The tests' files are in memory where 10 GiB are available, since most tests wait for the disk.
MEMORY ?= 6442450944
SUITE = $(BIN)/suite
$(SUITE): FORCE
	@go build -o $@ ./e2e/suite
FORCE:

# Packages that start no goroutine and share no memory: TestOnlySequentialPackagesAreNotRaced.
SEQUENTIAL := internal/base/failpoint internal/base/mountinfo internal/base/strictyaml internal/base/visibletext internal/document/logproof \
  internal/document/record internal/front/decisiontext internal/front/webpage/logview internal/front/webpage/patch internal/rule/catalog internal/rule/catalogdiff internal/rule/plan \
  internal/verify/bundle internal/verify/receipt internal/verify/report internal/worker/agent
# Packages whose tests compute, compile or wait for scrypt, which the race detector makes many times slower.
UNRACED := internal/testkit/arch internal/base/cron internal/front/deploycli e2e/suite
# Packages whose tests run again without the race detector, at full size; they are the slowest with it, and start first.
FULL := internal/verify/evidence internal/run/orchestrator internal/worker/jail internal/state/audit
# Tests of packages in FULL that run without the race detector alone: those of other programs and
# accounts, into which it cannot see, and those that compare costs, which it distorts.
UNSEEN := TestAllTestsPassAsAnOrdinaryUser|TestRealAgentProgramsWorkInside|TestCostOfACompletionDoesNotDependOnPlanSize|TestMutantsFindAMissingComparison

check: static race plain ## format, vet, lint, tidy, import policy, unit tests with -race

# Without atexit_sleep_ms=0 each process waits a second at exit, and many tests start hundreds.
race: setup $(VERSITYGW) $(SUITE)
	GORACE=atexit_sleep_ms=0 CGO_ENABLED=1 $(SUITE) -memory $(MEMORY) -- -race -timeout=20m -skip='$(UNSEEN)' $(addprefix ./,$(FULL)) $$(go list ./... | grep -vxE "$$(go list -m)/(e2e|$$(echo $(FULL) $(SEQUENTIAL) $(UNRACED) | tr ' ' '|'))")

plain: setup $(SUITE)
	$(SUITE) -memory $(MEMORY) -- -timeout=20m $(addprefix ./,$(UNRACED) $(SEQUENTIAL))

# Tests that wait in real time run beside each other: more at once than there are processors.
full: setup agents browser $(FOREIGN) $(SUITE)
	$(SUITE) -memory $(MEMORY) -- -timeout=50m -parallel=6 $(addprefix ./,e2e $(FULL))

# Worlds of e2e on machines in mode system: the same tests, with accounts of an installation. e2e/mode_exempt_test.go
# names those about mode same-user itself.
ON_MACHINES := BAILIWICK_E2E_MODE=system $(SUITE) -memory $(MEMORY) --
TESTS ?= .
system: setup agents $(FOREIGN) $(SUITE) ## run the end-to-end tests on machines in mode system (TESTS=, a pattern; KILLS as in make kills), root
	$(ON_MACHINES) -timeout=90m -parallel=6 -run '$(TESTS)' ./e2e $(if $(filter command% environ%,$(origin KILLS)),-kills $(KILLS))

# The attacks of the jail under uid blocks, and the proofs of the MCP server in both modes, are tests of full.
QUICK := TestDispatchIsIdempotentOnItsID TestAPatchComesBackAndApplies TestNeedsReceiveUpstreamProducts TestLocksDecideWhatRunsTogether TestAHumanApprovesACall \
  TestKilledServiceLeavesACallUnknown TestStopAppliesOnlyToItsScope TestCancelReachesTheWholeTreeAndKeepsTheWork TestVerifyCommandSeesOnlyThePatchOfTheAgent TestAPlanPinsWhatAServerSays
empty :=
space := $(empty) $(empty)
quick: setup $(SUITE)
	$(ON_MACHINES) -timeout=20m -parallel=6 -run '^($(subst $(space),|,$(strip $(QUICK))))$$' ./e2e

agents: ## install the real MCP clients that the end-to-end tests run (1.4 GB from npm, once, into .cache)
	@scripts/npm agents >/dev/null

browser: ## install what the tests check the page with in a browser (3 MB from npm, once, into .cache)
	@scripts/npm browser >/dev/null

# What a part of the suite needs from others is built or fetched while the parts before it run.
test: setup ## run the whole suite: check, then the end-to-end tests and the packages that need full size without -race
	@nice $(MAKE) --no-print-directory $(VERSITYGW) & storage=$$!; \
	nice $(MAKE) --no-print-directory $(LINT) $(filter-out $(VERSITYGW),$(FOREIGN)) agents browser & others=$$!; \
	trap 'kill $$storage $$others 2>/dev/null || :' EXIT; \
	$(MAKE) --no-print-directory plain; \
	wait $$storage; \
	$(MAKE) --no-print-directory race; \
	wait $$others; \
	$(MAKE) --no-print-directory static full quick

demo: ## show the main job on a real repository, a page per chapter (VERBOSE=1: the whole output; KEEP=1: keep its state, to look at in a browser)
	@scripts/demo

demo-agent: agents ## show four agent programs make one change each, with a scripted model (VERBOSE=1: the whole output)
	@scripts/demo-agent

prove: build setup ## prove in three ways, each with its control, that the MCP server can define nothing
	@scripts/prove $(BIN)

bench: build setup $(FOREIGN) ## print the figures of docs/benchmarks.md
	go test -run '^$$' -bench . -benchtime 2s -timeout 60m ./internal/worker/jail ./internal/state/audit ./internal/worker/broker ./internal/worker/capture ./internal/run/dispatch ./internal/verify/evidence ./internal/rule/plan ./internal/run/orchestrator ./internal/run/schedule ./e2e

soak: build setup $(FOREIGN) ## run the long counts: repeated crash tests, 2,000 kills, 30 minutes of mixed load, 1,000,000 model steps, fuzzing
	go test -timeout 120m -count=20 -run 'Kill|Crash|Cancel' ./internal/state/store ./internal/state/audit ./e2e
	go test -timeout 120m -count=20 -run 'Cut|Sync|Fail' ./internal/state/store -every 1
	go test -timeout 120m -run TestEveryFlippedBit ./deploy -every 1
	go test -timeout 120m -run TestSubmitsThatRaceABudget ./internal/run/dispatch -submits 10000
	go test -timeout 120m -count=20 -run 'Cut|Sync|Fail' ./internal/state/audit ./internal/state/blob ./internal/worker/supervisor # about 30,000 power cuts
	go test -timeout 120m -run TestNoChangedBundle ./internal/verify/evidence -mutations 100000
	go test -timeout 120m -run 'TestNoMissingMember|TestEveryFlippedBit' ./internal/verify/evidence -every 1
	go test -timeout 60m -run TestHonestStreamsAreCountedExactly ./internal/worker/broker -streams 10000
	@$(MAKE) mutants SEED=1
	go test -timeout 240m -run TestHonestRuns ./e2e -honest 1000
	go test -timeout 60m -run TestEndlessLine ./e2e -line 10737418240
	@$(MAKE) kills mixed model honest
	@$(MAKE) system KILLS=$(KILLS)
	@$(MAKE) fuzz FUZZTIME=5m

KILLS ?= 2000
SEED ?= 20
kills: setup $(FOREIGN) ## kill the service and workers KILLS times, at every failpoint and at random from SEED, and check every outcome
	go test -v -timeout 240m -run 'TestKillsNeverChange' ./e2e -kills $(KILLS) -seed $(SEED)

SOAK ?= 30m
mixed: setup $(FOREIGN) ## run a mixed load for SOAK and check that memory, descriptors, processes, mounts and disk stay flat
	go test -v -timeout 240m -run 'TestMixedLoad' ./e2e -soak $(SOAK) -seed $(SEED)

MUTANTS ?= 100000
mutants: ## verify MUTANTS bundles that were changed from SEED by who has the service's key, and print what became of each class
	go test -v -timeout 240m -run 'TestNoMutant|TestEachContradicting|TestMutantsFind' ./internal/verify/evidence -mutants $(MUTANTS) -seed $(SEED)

STEPS ?= 1000000
model: ## compare runs, budgets and schedules with a reference model for STEPS random steps
	go test -v -timeout 240m -run TestEngineMatchesTheReferenceModel ./internal/run/orchestrator -steps $(STEPS)

HONEST ?= 10000
honest: ## verify HONEST honest bundles with every documented copy of an anchor, without one false alarm
	go test -v -timeout 240m -run 'TestHonestCopies|TestForgedCopies' ./internal/verify/evidence -copies $(HONEST)

FUZZTIME ?= 30s
fuzz: ## run every fuzz target for FUZZTIME
	@for p in $$(go list ./...); do \
	  dir=$$(go list -f '{{.Dir}}' $$p); \
	  for f in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]+' $$dir/*_test.go 2>/dev/null | sed 's/func //' | sort -u); do \
	    echo "$$p $$f"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10s $$p; \
	  done; \
	done

vm: $(OIDC) ## run e2e/vm/steps in a Debian virtual machine with systemd and version 2 of control groups (root; STEPS="10-boot 20-jail": these alone)
	@$(MAKE) --no-print-directory dist ARCHES=amd64 DIST=$(CURDIR)/.cache/vm/dist
	@scripts/vm run

clean: ## remove bin/ and .cache/
	rm -rf $(BIN) .cache
