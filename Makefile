# What a developer runs. Everything CI runs is in .ci/run, which calls these.
GOLANGCI = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
CUDA_STUBS ?= /usr/lib/x86_64-linux-gnu/stubs

# The flags of tools/size, so that build, vet, lint and tests share compiled packages. A test of the commands links
# with a sixth less of processor time with them: it has no C code and leaves out what the tags name.
TAGS = disable_grpc_modules,grpcnotrace,netgo,osusergo,arrow_json_stdlib,connectors
FLAGS = $(shell go env GOFLAGS) -trimpath -tags=$(TAGS)
PLAIN = CGO_ENABLED=0 GOFLAGS="$(FLAGS)"
# Tests of tools/ that read files outside of their module. A cached result does not see such a file change.
OUTSIDE = ./architecture ./deploy/... ./doclint ./grafana ./longtests
# A tool of the module tools/, built and run at the root: $(call tool,size).
tool = $(PLAIN) go build -C tools -o ../bin/tools/$(notdir $(1)) ./$(1) && $(PLAIN) bin/tools/$(notdir $(1))
WITH_CUDA = CGO_ENABLED=1 CGO_LDFLAGS=-L$(CUDA_STUBS) GOFLAGS="$(FLAGS),cuda"

.PHONY: all leader cuda-program build vet test test-long lint cuda worker sanitize valgrind bench fuzz crash damage mutate nab quality quiet fleets chaos recover recover-train recover-talk recover-cluster recover-race lifecycle many soak watching test-slice entities metrics-cost scale architecture images pictures release snapshot recover-detectors clean

all: lint build test

build: ## the three commands, static and stripped, into bin/; fails if one is larger than its budget
	$(call tool,size) -version $(VERSION)

vet: ## go vet of the plain build of all modules; make cuda has the CUDA build
	$(PLAIN) go vet ./...
	$(PLAIN) go vet -C tools ./...
	$(PLAIN) go vet -C examples ./...

test: ## the tests that every change runs; two packages for each processor, as many tests wait; six minutes on two cores, which shall be three
	$(PLAIN) go test -p $$((2 * $$(getconf _NPROCESSORS_ONLN))) ./...
	$(PLAIN) go test -C tools ./...
	$(PLAIN) go test -C examples ./...
	$(PLAIN) go test -C tools -count=1 $(OUTSIDE)

test-long: ## the same and all long ones: processes under faults, all samples of the kernels' emulations; 20 minutes on two cores
	$(PLAIN) EXOSWARM_LONG=1 go test -timeout 30m ./...
	$(PLAIN) EXOSWARM_LONG=1 go test -C tools -timeout 30m ./...
	$(PLAIN) EXOSWARM_LONG=1 go test -C examples -timeout 30m ./...

test-slice: ## a quarter of what test-long adds to test: the slice of the day, or EXOSWARM_SLICE=0 to 3
	$(call tool,longtests)

# A campaign consists of long tests.
crash damage nab chaos recover recover-train recover-talk recover-cluster recover-race recover-detectors lifecycle many soak mutate: export EXOSWARM_LONG = 1

# Lint and vet read the Go files that cgo generates. With -trimpath the cache gives them for another folder with the same
# files, and they name that folder, which may be gone (https://go.dev/issue/36072).
UNTRIMMED = -trimpath=false

lint: ## format, import order and the short list of .golangci.yaml, for both builds
	$(PLAIN) $(GOLANGCI) run --timeout 15m ./...
	cd tools && $(PLAIN) $(GOLANGCI) run --timeout 15m ./...
	cd examples && $(PLAIN) $(GOLANGCI) run --timeout 15m ./...
	CGO_ENABLED=1 CGO_LDFLAGS=-L$(CUDA_STUBS) GOFLAGS="$(FLAGS) $(UNTRIMMED)" $(GOLANGCI) run --timeout 15m --build-tags cuda,$(TAGS) ./cuda ./cuda/internal/... ./cmd/worker

cuda: ## the GPU build: needs the CUDA 11.8 headers and link stubs, no GPU
	$(WITH_CUDA) go vet $(UNTRIMMED) ./cuda ./cuda/internal/...
	$(WITH_CUDA) go vet ./cmd/...
	$(WITH_CUDA) go build -o bin/gpuagent-cuda ./cmd/gpuagent
	$(WITH_CUDA) EXOSWARM_SKIP_GPU=1 go test ./cuda ./cuda/internal/...

# Other libraries of Go in the process have functions of the same names: only the functions of worker_cuda.h are visible.
WORKER_DIR ?= bin
WORKER_TAGS ?=
WORKER_STRIP ?= -s -w
WORKER_LINK = -soname,libexoswarm_worker.so,--version-script=$(CURDIR)/cmd/worker/worker.map
worker: ## libexoswarm_worker.so and worker_cuda.h for programs in C, C++, Rust and Python; WORKER_TAGS=cuda is for GPUs
	CGO_ENABLED=1 GOFLAGS="$(FLAGS)$(WORKER_TAGS:%=,%)" go build $(WORKER_BUILD) -buildmode=c-shared -ldflags "$(WORKER_STRIP) -extldflags=-Wl,$(WORKER_LINK)" -o $(WORKER_DIR)/libexoswarm_worker.so ./cmd/worker
	rm -f $(WORKER_DIR)/libexoswarm_worker.h
	cp cmd/worker/worker_cuda.h $(WORKER_DIR)

sanitize: ## the C code of the driver's binding under AddressSanitizer and UndefinedBehaviorSanitizer, on a fake driver, and the C library under the former
	CGO_ENABLED=1 CGO_CFLAGS="-g -O1 -fsanitize=undefined -fno-sanitize-recover=undefined" CGO_LDFLAGS="-L$(CUDA_STUBS) -fsanitize=undefined" EXOSWARM_SANITIZE=1 EXOSWARM_SKIP_GPU=1 \
	  go test -asan -count=1 -timeout 5m -tags cuda -run '^TestFakeDriver$$' ./cuda/internal/driver
	$(PLAIN) EXOSWARM_SANITIZE=1 go test -count=1 -timeout 10m -run '^TestSanitized$$' ./cmd/worker

valgrind: ## the same under Valgrind
	CGO_ENABLED=1 CGO_CFLAGS="-g -O1" CGO_LDFLAGS=-L$(CUDA_STUBS) GOFLAGS="$(FLAGS),cuda,valgrind" EXOSWARM_VALGRIND=1 EXOSWARM_SKIP_GPU=1 \
	  go test -o bin/driver.valgrind -count=1 -timeout 10m -run '^TestFakeDriver$$' ./cuda/internal/driver # with -o it has symbols
	$(PLAIN) EXOSWARM_VALGRIND=1 go test -count=1 -timeout 10m -run '^TestWatched$$' ./cmd/worker

bench:
	go test -run '^$$' -bench . ./...

FUZZTIME ?= 20s
fuzz: ## every fuzz target there is, each for FUZZTIME
	@for p in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
	  for f in $$(go test -C $$p -list '^Fuzz' . | grep '^Fuzz'); do \
	    echo "== $$p $$f" && go test -C $$p -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x . || exit 1; \
	  done; \
	done

crash: ## the full campaigns of crashes, kills, flips and faults on the page store, and their counts; 20 minutes on two cores
	EXOSWARM_CRASHES=30 EXOSWARM_KILLS=1000 EXOSWARM_FLIPS=100000 EXOSWARM_FAULTS=20 EXOSWARM_BADGER_DAMAGE=1000 \
	  go test ./tiers/pagestore -run 'Crash|Kill|Flip|Fault|BadgerDamage' -v -count=1 -timeout 2h

damage: ## 10,000 damaged checkpoints of GPU agents, in one folder and over three tiers: each agent resumes or replays its log, and no state is wrong
	go test ./cmd/internal/gpuprocess -run '^TestDamage$$' -v -count=1 -timeout 4h -args -damage.n=10000 -damage.seed=1 -damage.jobs=2

SEED ?= 1
mutate: ## 200 changes to code that guards, fences, commits and limits: at least 90 % of them make a test of their package fail
	$(call tool,mutate) -n 200 -seed $(SEED)

nab: ## scores on the labelled streams beside the repository (../shared/nab), learning on and off
	go test -count=1 -v -run 'TestStreams' ./cuda/host/celltwin

quality: ## every figure of docs/quality.md: 15 minutes on two cores at most; the labelled streams are beside the repository (../shared/nab)
	$(call tool,quality/report) --doc docs/quality.md --charts docs/charts

quiet: ## false alarms on 10,000 quiet generated series of a month are within 1.5 times the rates asked for; 20 minutes on two cores
	go test -C tools ./quality/celldetector -run '^TestAlarmsPerDay$$' -v -count=1 -timeout 2h -args -rate.series=10000

fleets: ## of what is shown of generated fleets of 1,000 entities: the share of false incidents, detection, and false alarms by family; five minutes on two cores
	go test -C tools ./quality/celldetector -run '^TestFleet' -v -count=1 -timeout 1h -args -fleet.entities=1000

chaos: ## fault runs of the queue at length, about two hours: ten faults of each kind with each of five seeds; as root with power cuts and partitions
	for seed in 1 2 3 4 5; do \
	  go test -count=1 -v -timeout 40m -run 'TestChaos' ./cmd/exoswarm -args -chaos.all -chaos.faults=10 -chaos.rate=200 -chaos.seed=$$seed || exit 1; \
	done

recover: ## 200 kill -9 of agents and NATS server under load, over four seeds, about ten minutes a seed: outputs and answers equal an undisturbed run
	for seed in 1 2 3 4; do \
	  go test -count=1 -v -timeout 2h -run '^TestRecovery$$' ./cmd/exoswarm -args -recover.kills=50 -recover.seed=$$seed || exit 1; \
	done

recover-train: ## 50 kill -9 of the GPU agent in a training and 16 in one of a program, about 30 minutes: the weights of undisturbed ones
	go test -count=1 -v -timeout 2h -run '^TestTrain(Program)?Recovery$$' ./cmd/exoswarm -args -train.kills=50

recover-talk: ## 200 kill -9 of the GPU agent in 100 conversations, about 8 minutes: the tokens of undisturbed ones
	go test -count=1 -v -timeout 4h -run '^TestConversationRecovery$$' ./cmd/exoswarm -args -talk.kills=200

recover-cluster: ## 1,000 kill -9 and 200 SIGSTOP over ten seeds, of three NATS servers and two agents of each kind: as recover
	for seed in 1 2 3 4 5 6 7 8 9 10; do \
	  go test -count=1 -v -timeout 4h -run '^TestRecovery$$' ./cmd/exoswarm -args -recover.servers=3 -recover.agents=2 -recover.kills=100 -recover.stops=20 -recover.seed=$$seed || exit 1; \
	done

recover-race: ## the slice of recover that the gate runs, with commands that are built with the race detector
	go test -count=1 -timeout 10m -run '^(TestRecovery|TestDetectorRecovery)$$' ./cmd/exoswarm -args -commands.race -recover.rows=240 -detect.kills=3 -detect.rows=300

recover-detectors: ## detectors over all kinds of sources under 60 kills of all processes, three minutes: nothing lost, nothing doubled, the same bits
	go test -count=1 -v -timeout 2h -run '^TestDetectorRecovery$$' ./cmd/exoswarm -args -detect.kills=60 -detect.rows=6000 -detect.seed=$(SEED)

leader: ## 100 kill -9 of processes that serve the leader of a swarm: rounds and terms grow, and no term has two leaders
	EXOSWARM_LONG=1 go test -count=1 -v -timeout 1h -run '^TestLeaderKilled$$' ./cmd/exoswarm -args -leader.kills=100

LIFECYCLES ?= 200
lifecycle: ## 2,000 sequences of deletions, creations, kills, restarts, partitions, empty stores and two data folders in one process, about an hour and a half, and LIFECYCLES of real processes, half an hour on two cores: no wrong state, no deaf agent
	go test -count=1 -v -timeout 5h -run '^TestLifecycle' ./cmd/internal/gpuprocess -args -rapid.checks=2000 -rapid.nofailfile
	go test -count=1 -v -timeout 5h -run '^TestLifecycleProcesses$$' ./cmd/exoswarm -args -lifecycle.n=$(LIFECYCLES) -lifecycle.seed=$(SEED)

many: ## 10,000 idle swarms on one agent, ten minutes: memory, goroutines, files, leases, first answers, a kill; the server needs 21,000 open files
	go test -count=1 -v -timeout 3h -run '^TestMany$$' ./cmd/exoswarm -args -many.swarms=10000 -many.idle=10m -many.open=64 -many.ttl=10s -many.asked=500

SOAK ?= 10m
ENTITY_ROWS ?= 1000000
soak: ## rate and memory of a cluster that streams for SOAK at its highest rate, 64 agents a group on the host device
	go test -count=1 -v -timeout 2h -run '^TestSoak$$' ./cmd/exoswarm -args -soak.for=$(SOAK)

WATCHING ?= 30s
watching: ## what 10 viewers of the dashboard cost: observations a second without and with them, four pairs of WATCHING each; for a quiet machine
	EXOSWARM_LONG=1 go test -count=1 -v -timeout 1h -run '^TestWatchingCost$$' ./cmd/exoswarm -args -watching.for=$(WATCHING) -watching.most=2

metrics-cost: ## what scrapes every 5 s and traces of 1 % cost, as processor time of five pairs of runs of 800,000 rows, 20 times as often and divided by 20; at most 1 %
	EXOSWARM_LONG=1 go test -count=1 -v -timeout 1h -run '^TestScrapeCost$$' ./cmd/internal/serveprocess -args -cost.rows=800000 -cost.pairs=5 -cost.times=20 -cost.most=1

SCENARIOS ?= one-host pair-shards pair-cores wan gateway gpus fault-none fault-broker fault-agent fault-writer
scale: ## tables and charts of docs/scale.md: predictions of the measured runs, and the scenarios of tools/simulate; two minutes on two cores
	$(call tool,simulate) validate tools/simulate/measured/stages.times tools/simulate/measured/runs.times
	$(call tool,simulate) run -charts docs/charts $(SCENARIOS:%=tools/simulate/scenarios/%.yaml)

entities: build ## rows/s of one process over rows of 100,000 entities of 16 agents in random order; ENTITY_ROWS of them
	dir=$$(mktemp -d) && trap "rm -rf $$dir" EXIT && \
	go run -C tools ./keyedrows -rows $(ENTITY_ROWS) -entities 100000 > $$dir/rows.csv && \
	printf 'name: entities\nkey: device_id\nagents_per_group: 16\nmax_entities: 100000\n' > $$dir/swarm.yaml && \
	bin/exoswarm run -f $$dir/swarm.yaml --input $$dir/rows.csv --output $$dir/decisions.ndjson --progress none | tail -8

architecture: ## the generated part of docs/architecture.md: layers, and every package in one line
	go run -C tools ./architecture

pictures: build ## pictures of the pages of the dashboard, into docs/images, from a demo that has found five incidents; needs chromium, takes three minutes
	$(PLAIN) go test -count=1 -timeout 10m ./internal/app/ops/dashboard -run '^TestDemo$$' -args -serve $(CURDIR)/bin/exoswarm -pictures $(CURDIR)/docs/images

images: build ## images of the three commands, into images/, without a container daemon: docker load -i images/exoswarm.tar
	$(call tool,deploy/container) -version $(VERSION) -o images

# The agent with CUDA of a release, or nothing where the headers and stubs of CUDA 11.8 are missing.
cuda-program:
	rm -f bin/gpuagent-cuda
	! test -e $(CUDA_STUBS)/libcuda.so || $(WITH_CUDA) go build -o bin/gpuagent-cuda -ldflags "-s -w -X github.com/exoswarm/exoswarm/internal/app/command.version=$(VERSION)" ./cmd/gpuagent

release: build cuda-program ## archives, packages, images, chart, licences, SBOM and SHA256SUMS of all platforms, into dist/
	$(call tool,release) -version $(VERSION) -commands bin

snapshot: build cuda-program ## the same for this platform alone
	$(call tool,release) -version $(VERSION) -commands bin -platforms $$(go env GOOS)/$$(go env GOARCH)

clean:
	rm -rf bin images dist exoswarm-out
