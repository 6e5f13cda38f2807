# freshet. `make` lists what there is to make.
.DEFAULT_GOAL := help
GO ?= go
SEEDS ?= 20000

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build ./freshet
	$(GO) build -o freshet ./cmd/freshet

.PHONY: test
test: lint ## everything that must pass before a commit: real Redis, PostgreSQL, MariaDB and etcd beside it, nothing skipped
	GO="$(GO)" scripts/with-servers scripts/gotest -timeout 15m ./...

.PHONY: lint
lint: ## gofmt, vet, staticcheck
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "gofmt these files"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags freshetcheck ./linear/...
	$(GO) tool staticcheck ./...

.PHONY: race
race: ## the same tests under the race detector, but for those of whole processes and of the sources, with the invariants checked after every step; simulations short
	GO="$(GO)" scripts/with-servers scripts/gotest -race -tags freshetcheck -short -timeout 20m $$($(GO) list ./... | grep -vE '/(blackbox|internal/tidy|internal/mutants)$$')

MUTANTS = GO="$(GO)" scripts/with-servers scripts/gotest -count=1 -timeout 60m -parallel 2 -v -run TestMutants ./internal/mutants

.PHONY: mutants
mutants: ## change every rule on purpose and see that a test notices; what is known from before is not run again. ONLY=part of a name
	FRESHET_MUTANTS="$(or $(ONLY),all)" FRESHET_MUTANTS_CACHE=yes $(MUTANTS)

.PHONY: teeth
teeth: ## all mutants, from nothing
	FRESHET_MUTANTS=all $(MUTANTS)

.PHONY: storms
storms: ## long simulation: SEEDS=20000 seeds
	FRESHET_SEEDS=$(SEEDS) $(GO) test -count=1 -timeout 24h -v -run 'Test(Mesh|Eventual)?Storms$$' ./sim

.PHONY: chaos
chaos: ## faults at real processes, PostgreSQL and etcd for CHAOS=10m with SEED=n
	FRESHET_CHAOS=$(or $(CHAOS),10m) FRESHET_SEED=$(SEED) scripts/with-servers $(GO) test -count=1 -timeout 24h -v -run TestChaos ./blackbox

.PHONY: explore
explore: ## exhaustive exploration with no limit on states
	FRESHET_EXPLORE=all $(GO) test -count=1 -timeout 24h -v -run 'TestLinear|TestMesh' ./sim/explore

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME=20s
	scripts/fuzz $(or $(FUZZTIME),20s)

.PHONY: bench
bench: build ## the quick presets of every experiment, into ./bench-out
	for e in $$(./freshet bench list | cut -d " " -f 1); do ./freshet bench $$e --preset smoke --out bench-out || exit 1; done

.PHONY: clean
clean: ## remove what make has built
	rm -rf freshet bench-out .tools
