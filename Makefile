# Everything runs from a fresh clone with Go and git. The interop suite also needs a JDK 17 and a JDK 24 or later,
# Maven and Python 3.11; it fetches the peers into .cache.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS  = -s -w -buildid= -X main.version=$(VERSION)
GOBUILD  = CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)'

.PHONY: all build demo test lint fuzz interop chaos bench bench-peers bench-compare soak clean help

all: build

help: ## show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

build: ## build the static binary bin/calve
	$(GOBUILD) -o bin/calve ./cmd/calve

demo: build ## run the main job on real flights with an embedded broker
	./bin/calve demo

test: ## run all tests with the race detector
	go test -race -timeout 10m ./...
	go test -run TestCompactionMemory ./lsm

lint: ## format, vet, static analysis
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "not formatted: $$out"; exit 1; fi
	go vet ./...
	go vet -tags interop ./...
	go tool -modfile=interop/tools/go.mod staticcheck ./...

TIME ?= 1m
fuzz: ## let every decoder meet random bytes for TIME each (default 1m), starting from the golden files
	@for p in $$(git grep -l '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u); do \
	  for f in $$(grep -hoE '^func Fuzz[A-Za-z]*' $$p/*_test.go | cut -c6-); do \
	    echo "$$p $$f"; go test ./$$p -run '^$$' -fuzz "^$$f\$$" -fuzztime $(TIME) || exit 1; done; done

interop: build ## let the real peers judge: Paimon, pypaimon, Flink, Trino, DuckDB, PyIceberg, Spark, Kafka, Debezium, S3 (ARGS="-run CASE/PEER")
	go test -tags interop ./interop
	go run -tags interop ./interop/run -calve bin/calve $(ARGS)

chaos: build ## kill calve 450 times while it ingests from Kafka into a folder and S3 that fails; some 12 minutes (ARGS="-kills 40 -seed 7")
	go run -tags interop ./interop/chaos -calve bin/calve $(ARGS)

bench: ## run the microbenchmarks and write bench/results and bench/README.md
	go run ./bench

bench-peers: ## measure beside Paimon Java, DuckDB and Flink (make interop fetches them; needs a JDK) and write bench/PEERS.md
	go run ./bench/peer
	go run ./bench/peer -follow 20s
	go run ./bench/peer -ingest 2000000

bench-compare: ## what a change cost: OLD=bench/results/A.txt NEW=bench/results/B.txt
	go tool -modfile=interop/tools/go.mod benchstat $(OLD) $(NEW)

soak: ## keep a table under load for 30 minutes and look whether it stays right and small (ARGS="-time 2m -seed 7")
	go run ./bench/soak $(ARGS)

clean: ## remove what was built
	rm -rf bin dist
