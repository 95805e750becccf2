BUILD ?= build
DEV = $(BUILD)-dev
BENCH = $(BUILD)-bench
NEWS = $(BUILD)-news
DEBIAN = $(BUILD)-packages
ARM64 = $(BUILD)-arm64
MUSL = $(BUILD)-musl
CONTAINERS = $(BUILD)-containers
PACKAGES = cmake ninja-build gcc g++ pkg-config liblz4-dev libxxhash-dev lz4 python3 python3-venv strace valgrind
PEERS = liblmdb-dev librocksdb-dev libleveldb-dev libtkrzw-dev libkyotocabinet-dev libtdb-dev libsqlite3-dev memcached \
	redis-server
# What decides about a change, and what informs (CONTRIBUTING.md). At night all decide.
DECIDING = lint test test-sanitizers test-arm64 test-musl test-models test-servers test-adapters test-tier test-release
INFORMING = mutants-changed figures
NIGHTLY = $(filter-out test-release,$(DECIDING)) figures mutants demo-swift test-release-twice stress test-containers \
	test-sizes sanitizers sanitize-swift histories fuzz bench-quick test-wheel-arm64 test-adapters-llm

.PHONY: all help setup check test ci nightly demo demo-swift lint tool packages arm64 musl wheel release documentation \
	figures mutants mutants-changed stress sanitizers sanitize-swift histories fuzz bench bench-quick bench-pauses \
	bench-memory bench-python bench-swift bench-program test-sizes test-sanitizers test-tool test-packages test-arm64 \
	test-wheel-arm64 test-musl test-models test-servers test-adapters test-adapters-llm test-tier test-release \
	test-release-twice test-containers cache-tests proxy-tests clean

all: setup ## builds build/libshale.so and build/libshale.a; like every target, installs missing packages first
	cmake -S . -B $(BUILD) -G Ninja
	cmake --build $(BUILD)

help: ## prints this list
	@awk -F ':.*## ' '/^##/ { print "\n" substr($$0, 4) } /^[a-z0-9-]+:.*## / { printf "make %-18s %s\n", $$1, $$2 }' Makefile

setup:
	@Scripts/setup $(PACKAGES)

demo: all ## runs three programs in C, Python and Swift on one cache, with this machine's data
	Examples/Demo/run

demo-swift: ## runs a news reader in Swift and its server, which it kills and restarts
	@Scripts/setup git gzip liblz4-dev zlib1g-dev
	swift build -c release --package-path Examples/NewsReader --scratch-path $(abspath $(NEWS)) --product NewsReader
	$(NEWS)/release/NewsReader demo

## Checks: four lanes, each longer than the previous one

check: setup ## before each commit: one variant of the library, the quick tests in C and Python; five minutes at most
	cmake -S . -B $(DEV) -G Ninja -DSHALE_ONE_VARIANT=ON
	cmake --build $(DEV)
	Scripts/test --quick $(DEV)

test: all ## all tests of the library in C, Swift and Python; 15 minutes at most
	Scripts/test $(BUILD)

ci: ## continuous integration: lint, the tests, and everything that is published; 45 minutes at most
	Scripts/lane --minutes 45 $(DECIDING) --informing $(INFORMING)

nightly: ## all mutants, stress, containers, long histories, fuzzing, benchmarks; about six hours
	Scripts/lane $(NIGHTLY)

## Parts of the lanes

lint: ## formatters, linters, layers of the core, texts of mutants; Scripts/lint --fix formats first
	@Scripts/setup python3 python3-venv liblz4-dev libxxhash-dev
	Scripts/lint

mutants: setup ## breaks the engine in each known way and checks that a test fails
	Tests/Mutants/run

mutants-changed: setup ## the same for the differences from BASE and for 8 other mutants; five minutes of two cores at most
	Tests/Mutants/run --check
	Tests/Mutants/run --changed $(or $(BASE),HEAD~10)

figures: all ## sizes, instructions, holds of locks beside those on record, after `make test`; RECORD=1 puts sizes on record
	Scripts/figures $(if $(RECORD),--record) $(BUILD)

stress: all ## kills, power failures, faults and damaged files; SECONDS=600 for each part
	Scripts/stress $(BUILD) $(SECONDS)

test-sizes: all ## caches of up to 1 GiB whose entries change their sizes, and the longest set meanwhile; 20 minutes
	$(BUILD)/Tests/C/changing_sizes 64 256 1024
	$(BUILD)/Tests/C/changing_sizes longest 256

test-sanitizers: all ## short tests in C under sanitizers and valgrind
	Scripts/suite "C tests under sanitizers" ctest --test-dir $(BUILD) -j 2 -- -L sanitizers

sanitizers: all ## `stress` under ThreadSanitizer, and under AddressSanitizer with UndefinedBehaviorSanitizer; SECONDS=600
	Scripts/sanitize thread $(BUILD) $(or $(SECONDS),600)
	Scripts/sanitize address $(BUILD) $(or $(SECONDS),600)

sanitize-swift: ## tests of the Swift products Shale and ShaleAdapters under ThreadSanitizer; 20 minutes at most
	@Scripts/setup git liblz4-dev libxxhash-dev
	Scripts/sanitize-swift

histories: all ## long histories of the near tier and of failing loads in Python, and long model tests in Swift
	@Scripts/setup redis-server memcached
	SHALE_MODEL_OPERATIONS=20000 SHALE_MODEL_SEED=$$(date +%s) swift test --filter ModelTests
	Scripts/test-tier --build $(BUILD) --runs 300
	Scripts/load-histories $(BUILD) $(SECONDS)

fuzz: setup ## the fuzz targets; SECONDS=60 for each
	Tests/Fuzz/run $(SECONDS)

test-tool: tool ## tests the tool `shale`
	@Scripts/setup python3 python3-venv
	Tools/test $(BUILD)/tool/shale $(abspath $(BUILD))/venv-tool

test-packages: packages ## installs, uses and removes Debian's packages in a separate root; checks the binary interface
	@Scripts/setup debootstrap abigail-tools
	Tests/Packages/abi $(DEBIAN)/libshale.so
	Tests/Packages/run $(DEBIAN)

test-arm64: arm64 setup ## tests the library for arm64 in qemu's user mode
	@Scripts/setup qemu-user
	cmake -S . -B $(BUILD) -G Ninja
	cmake --build $(BUILD) --target shale_static
	Tests/Arm64/run $(BUILD) $(ARM64)

test-wheel-arm64: arm64 ## builds a Python wheel for arm64, and tests it in qemu's user mode
	@Scripts/setup debootstrap qemu-user python3 python3-venv
	Scripts/wheel --arm64 $(ARM64)

test-musl: musl setup ## tests the library for musl on this machine
	@Scripts/setup python3 python3-venv
	cmake -S . -B $(BUILD) -G Ninja
	cmake --build $(BUILD) --target shale_static
	Tests/Musl/run $(BUILD) $(MUSL)

test-containers: all musl ## stresses a cache that containers with different namespaces and libcs share; 30 minutes at most
	@Scripts/setup debootstrap binutils
	cmake --build $(MUSL) --target test_containers
	Tests/Containers/run $(BUILD) $(MUSL) $(CONTAINERS)

test-models: ## checks models of the locks and lock-free protocols with spin
	@Scripts/setup gcc spin
	Tests/Models/run

test-servers: ## tests the Swift products for servers
	@Scripts/setup git liblz4-dev libxxhash-dev
	Scripts/suite "products for servers" swift test --package-path Servers

test-adapters: all ## downloads other projects' tests and runs them on the Python adapters
	Scripts/test-adapters --build $(BUILD)

test-adapters-llm: all ## installs LiteLLM, DSPy and Triton, which have 2 GB, and tests the adapters for them
	Scripts/test-adapters --build $(BUILD) llm

test-tier: all ## starts Redis and memcached and tests the near tier of Python with them
	@Scripts/setup redis-server memcached
	Scripts/test-tier --build $(BUILD)

test-release: setup ## builds a release and tests each of its files
	@Scripts/setup git make musl-tools debootstrap abigail-tools
	Tests/Release/run $(abspath $(BUILD))-release

test-release-twice: setup ## the same; then builds the release again, in another folder, and compares the bytes
	@Scripts/setup git make musl-tools debootstrap abigail-tools
	Tests/Release/run --twice $(abspath $(BUILD))-release

cache-tests: ## runs a checkout of github.com/http-tests/cache-tests, DIR=…, against ShaleHTTP
	@Scripts/setup git liblz4-dev libxxhash-dev nodejs python3
	swift build --package-path Servers --product CacheProxy
	Servers/Scripts/cache-tests Servers/.build/debug/CacheProxy $(DIR)

proxy-tests: ## tests ShaleHTTP under load, with clients that leave, and with hostile messages; 30 seconds
	@Scripts/setup git liblz4-dev libxxhash-dev python3
	swift build --package-path Servers --product CacheProxy
	Servers/Scripts/proxy-tests 18080 18000 Servers/.build/debug/CacheProxy http://127.0.0.1:18000 18080

## Published files

tool: ## builds the tool `shale`, one file, build/tool/shale
	@Scripts/setup git gcc g++ binutils liblz4-dev libxxhash-dev
	Tools/build $(BUILD)/tool

packages: ## builds packages for Debian in build-packages
	@Scripts/setup $(PACKAGES) git binutils dpkg-dev
	cmake -S . -B $(DEBIAN) -G Ninja -DCMAKE_INSTALL_PREFIX=/usr -DSHALE_PACKAGES=ON -DBUILD_TESTING=OFF \
		-DSHALE_TOOL_FOLDER=$(abspath $(BUILD))/tool
	cmake --build $(DEBIAN)
	rm -f $(DEBIAN)/*.deb
	cd $(DEBIAN) && cpack -G DEB

arm64: ## builds the library for Linux on arm64 in build-arm64
	@Scripts/setup cmake ninja-build gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross
	Scripts/arm64-libraries $(ARM64)/libraries
	cmake -S . -B $(ARM64) -G Ninja --toolchain CMake/arm64.cmake -DSHALE_ARM64_LIBRARIES=$(abspath $(ARM64))/libraries
	cmake --build $(ARM64) --target shale shale_static

musl: ## builds the library for musl in build-musl
	@Scripts/setup cmake ninja-build gcc binutils musl-tools liblz4-dev libxxhash-dev
	cmake -S . -B $(MUSL) -G Ninja --toolchain CMake/musl.cmake
	cmake --build $(MUSL) --target shale shale_static

wheel: all ## builds the Python package's wheels and sdist, and tests each in an empty environment
	Scripts/wheel $(BUILD)

release: ## builds all published files of the last commit, with checksums, in dist
	@Scripts/setup git make python3 python3-venv musl-tools
	Scripts/release

# --warnings-as-errors: a dead link is an error.
documentation: setup ## builds the Swift products' documentation in build/documentation
	mkdir -p $(BUILD)/documentation
	for product in ShaleCore Shale ShaleAdapters; do \
		SHALE_DOCUMENTATION=1 swift package --scratch-path .build-documentation --allow-writing-to-directory $(BUILD)/documentation \
			generate-documentation --target $$product --warnings-as-errors --output-path $(BUILD)/documentation/$$product || exit 1; \
	done

## Measurements

bench: bench-program ## the README's figures, with other stores for comparison: two hours
	$(BENCH)/Benchmarks/bench --json $(BENCH)/results/native.json
	Benchmarks/report/merge $(BENCH)/results/native.json > Benchmarks/results/native.json
	$(BENCH)/venv/bin/python Benchmarks/report/charts Benchmarks/results/native.json
	$(BENCH)/venv/bin/python Benchmarks/report/figures Benchmarks/results/native.json

bench-quick: bench-program ## the same in a few minutes, less accurate
	$(BENCH)/Benchmarks/bench --quick --json $(BENCH)/results/native.json
	$(BENCH)/venv/bin/python Benchmarks/report/charts $(BENCH)/results/native.json
	$(BENCH)/venv/bin/python Benchmarks/report/figures $(BENCH)/results/native.json

bench-pauses: bench-program ## the longest set calls over minutes, also of other stores: twenty minutes; OPTIONS="--seconds 10"
	$(BENCH)/Benchmarks/pauses --directory $(BENCH) --output $(BENCH)/results/pauses.json $(OPTIONS)
	Benchmarks/report/merge $(BENCH)/results/pauses.json > Benchmarks/results/pauses.json
	$(BENCH)/venv/bin/python Benchmarks/report/pauses Benchmarks/results/pauses.json

bench-memory: bench-program ## gets and sets with memory for a quarter of the data, also of other stores: ten minutes; OPTIONS="--seconds 3"
	$(BENCH)/Benchmarks/larger_than_memory --directory $(BENCH) --output $(BENCH)/results/larger_than_memory.json $(OPTIONS)
	Benchmarks/report/merge $(BENCH)/results/larger_than_memory.json > Benchmarks/results/larger_than_memory.json

bench-python: all ## the Python binding and other packages, some minutes; OPTIONS="--quick"
	-@Scripts/setup redis-server
	test -x $(BENCH)/venv/bin/python || python3 -m venv $(BENCH)/venv
	$(BENCH)/venv/bin/pip install -q --disable-pip-version-check -r Benchmarks/python/requirements.txt
	SHALE_LIBRARY=$(abspath $(BUILD))/libshale.so $(BENCH)/venv/bin/pip install -q --disable-pip-version-check \
		--force-reinstall --no-deps ./Bindings/Python
	$(BENCH)/venv/bin/python -m shale bench --json Benchmarks/results/python-peers.json $(OPTIONS)
	$(BENCH)/venv/bin/python Benchmarks/report/python_page

bench-swift: ## the Swift interface: five minutes plus the build
	@Scripts/setup git liblz4-dev libsqlite3-dev python3
	swift package --package-path Benchmarks/swift --scratch-path $(abspath $(BENCH)-swift) --allow-writing-to-directory $(abspath $(BENCH)-swift) \
		benchmark --format jmh --path $(abspath $(BENCH)-swift) --no-progress
	Benchmarks/swift/report $(BENCH)-swift/Current_run.jmh.json Benchmarks/results/swift.json

# The program names the stores that are not installed, and omits them from the comparison.
bench-program: setup
	-@Scripts/setup $(PEERS)
	cmake -S . -B $(BENCH) -G Ninja -DSHALE_BENCHMARKS=ON -DBUILD_TESTING=OFF
	cmake --build $(BENCH)
	test -x $(BENCH)/venv/bin/python || python3 -m venv $(BENCH)/venv
	$(BENCH)/venv/bin/pip install -q --disable-pip-version-check -r Benchmarks/report/requirements.txt

clean: ## removes every build
	rm -rf $(BUILD) $(DEV) $(DEBIAN) $(ARM64) $(MUSL) $(CONTAINERS) $(BUILD)-release $(BENCH) $(BENCH)-swift $(NEWS) .build .build-embedded \
		.build-documentation .build-thread Tests/Consumer/.build-consumer Tests/Consumer/.build-first Servers/.build
