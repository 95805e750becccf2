# make          builds build/libshale.so and build/libshale.a
# make demo     does all set-up, then runs the main job on this machine's real data
# make demo-swift  a news reader in Swift and its server, killed and restarted on the way
# make test     does all set-up, then runs every test; ends with "N passed, M failed"
# make tool     builds the tool `shale` as one file, build/tool/shale
# make test-tool  tests it
# make packages  builds packages for Debian into build-packages
# make test-packages  installs, uses and removes them in a root of their own; checks the binary interface
# make arm64    builds libshale for Linux on arm64 into build-arm64
# make test-arm64-user  tests it by qemu's user mode
# make musl     builds libshale for musl into build-musl
# make test-musl  tests it with musl on this machine: two or three minutes
# make test-models  checks models of the protocols without locks, with spin
# make release  makes what is published of the last commit, with checksums, into dist
# make test-release  makes it twice and compares the bytes: six minutes
# make test-servers  tests the Swift package for servers; its web framework takes minutes to build
# make cache-tests DIR=…  runs a checkout of github.com/http-tests/cache-tests against ShaleHTTP: a minute after the build; needs node
# make test-adapters  runs other projects' own tests on the Python adapters for them; fetches them: up to eight minutes
# make test-tier  tests the near tier of Python with Redis and memcached, which it installs and starts: two minutes
# make wheel    makes the Python package's wheels and sdist, and tests each in an empty environment: some minutes
# make lint     looks how the code is written; Scripts/lint --fix formats it first
# make documentation   writes the Swift products' documentation into build/documentation
#
# Longer than a test may take; SECONDS says how long each part runs:
# make stress   kills, power cuts, faults and damaged files
# make fuzz     the fuzz targets
# make mutants  breaks the engine on purpose and looks whether the tests notice
#
# make bench    measures what the README shows, beside other stores: takes about two hours
# make bench-quick   the same in a few minutes, roughly
# make bench-python  measures the Python binding; OPTIONS="--quick" for a short run
# make bench-swift   measures the Swift interface: five minutes after the build

BUILD ?= build
BENCH = $(BUILD)-bench
NEWS = $(BUILD)-news
DEBIAN = $(BUILD)-packages
ARM64 = $(BUILD)-arm64
MUSL = $(BUILD)-musl
PACKAGES = cmake ninja-build gcc g++ pkg-config liblz4-dev libxxhash-dev lz4 python3 python3-venv strace valgrind
PEERS = liblmdb-dev librocksdb-dev libleveldb-dev libtkrzw-dev libkyotocabinet-dev libsqlite3-dev memcached redis-server

.PHONY: all setup demo demo-swift lint test test-servers cache-tests stress fuzz mutants bench bench-quick bench-program bench-python bench-swift clean tool test-tool packages test-packages arm64 test-arm64-user musl test-musl release test-release test-models test-adapters test-tier wheel

all: setup
	cmake -S . -B $(BUILD) -G Ninja
	cmake --build $(BUILD)

setup:
	@Scripts/setup $(PACKAGES)

demo: all
	Examples/Demo/run

demo-swift:
	@Scripts/setup git gzip liblz4-dev zlib1g-dev
	swift build -c release --package-path Examples/NewsReader --scratch-path $(abspath $(NEWS)) --product NewsReader
	$(NEWS)/release/NewsReader demo

lint:
	@Scripts/setup python3 python3-venv
	Scripts/lint

test: all
	Scripts/test $(BUILD)

tool:
	@Scripts/setup git gcc g++ binutils liblz4-dev libxxhash-dev
	Tools/build $(BUILD)/tool

test-tool: tool
	@Scripts/setup python3 python3-venv
	test -x $(BUILD)/venv-tool/bin/python || python3 -m venv $(BUILD)/venv-tool
	$(BUILD)/venv-tool/bin/pip install -q --disable-pip-version-check pytest xxhash
	SHALE_TOOL=$(abspath $(BUILD))/tool/shale $(BUILD)/venv-tool/bin/python -m pytest -q Tools/Tests

packages:
	@Scripts/setup $(PACKAGES) git binutils dpkg-dev
	cmake -S . -B $(DEBIAN) -G Ninja -DCMAKE_INSTALL_PREFIX=/usr -DSHALE_PACKAGES=ON -DBUILD_TESTING=OFF \
		-DSHALE_TOOL_FOLDER=$(abspath $(BUILD))/tool
	cmake --build $(DEBIAN)
	rm -f $(DEBIAN)/*.deb
	cd $(DEBIAN) && cpack -G DEB

test-packages: packages
	@Scripts/setup debootstrap abigail-tools
	Tests/Packages/abi $(DEBIAN)/libshale.so
	Tests/Packages/run $(DEBIAN)

arm64:
	@Scripts/setup cmake ninja-build gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross
	Scripts/arm64-libraries $(ARM64)/libraries
	cmake -S . -B $(ARM64) -G Ninja --toolchain CMake/arm64.cmake -DSHALE_ARM64_LIBRARIES=$(abspath $(ARM64))/libraries
	cmake --build $(ARM64) --target shale shale_static

test-arm64-user: arm64 setup
	@Scripts/setup qemu-user
	cmake -S . -B $(BUILD) -G Ninja
	cmake --build $(BUILD) --target shale_static
	Tests/Arm64/run $(BUILD) $(ARM64)

musl:
	@Scripts/setup cmake ninja-build gcc binutils musl-tools liblz4-dev libxxhash-dev
	cmake -S . -B $(MUSL) -G Ninja --toolchain CMake/musl.cmake
	cmake --build $(MUSL) --target shale shale_static

test-musl: musl setup
	@Scripts/setup python3 python3-venv
	cmake -S . -B $(BUILD) -G Ninja
	cmake --build $(BUILD) --target shale_static
	Tests/Musl/run $(BUILD) $(MUSL)

release:
	@Scripts/setup git make python3 python3-venv musl-tools
	Scripts/release

test-release:
	@Scripts/setup git make python3 python3-venv musl-tools pkg-config
	Tests/Release/run $(BUILD)-release

test-models:
	@Scripts/setup gcc spin
	Tests/Models/run

test-servers:
	@Scripts/setup git liblz4-dev libxxhash-dev
	swift test --package-path Servers

cache-tests:
	@Scripts/setup git liblz4-dev libxxhash-dev nodejs python3
	swift build --package-path Servers --product CacheProxy
	Servers/Scripts/cache-tests Servers/.build/debug/CacheProxy $(DIR)

test-adapters: all
	Scripts/test-adapters --build $(BUILD)

test-tier: all
	@Scripts/setup redis-server memcached
	Scripts/test-tier --build $(BUILD)

wheel: all
	Scripts/wheel $(BUILD)

# A link that leads nowhere is an error.
.PHONY: documentation
documentation: setup
	mkdir -p $(BUILD)/documentation
	for product in ShaleCore Shale ShaleAdapters; do \
		SHALE_DOCUMENTATION=1 swift package --scratch-path .build-documentation --allow-writing-to-directory $(BUILD)/documentation \
			generate-documentation --target $$product --warnings-as-errors --output-path $(BUILD)/documentation/$$product || exit 1; \
	done

stress: all
	Scripts/stress $(BUILD) $(SECONDS)

fuzz: setup
	Tests/Fuzz/run $(SECONDS)

mutants: setup
	Tests/Mutants/run

bench: bench-program
	$(BENCH)/Benchmarks/bench --json Benchmarks/results/native.json
	$(BENCH)/venv/bin/python Benchmarks/report/charts Benchmarks/results/native.json
	$(BENCH)/venv/bin/python Benchmarks/report/figures Benchmarks/results/native.json

bench-quick: bench-program
	$(BENCH)/Benchmarks/bench --quick --json $(BENCH)/results/native.json
	$(BENCH)/venv/bin/python Benchmarks/report/charts $(BENCH)/results/native.json
	$(BENCH)/venv/bin/python Benchmarks/report/figures $(BENCH)/results/native.json

bench-python: bench-program
	$(BENCH)/venv/bin/pip install -q --disable-pip-version-check -r Benchmarks/python/requirements.txt
	SHALE_LIBRARY=$(BENCH)/libshale.so PYTHONPATH=Bindings/Python/src $(BENCH)/venv/bin/python \
		Benchmarks/python/bench.py --floor $(BENCH)/Benchmarks/python_floor.so \
		--json Benchmarks/results/python.json $(OPTIONS)

bench-swift:
	@Scripts/setup git liblz4-dev libsqlite3-dev python3
	swift package --package-path Benchmarks/swift --scratch-path $(abspath $(BENCH)-swift) --allow-writing-to-directory $(abspath $(BENCH)-swift) \
		benchmark --format jmh --path $(abspath $(BENCH)-swift) --no-progress
	Benchmarks/swift/report $(BENCH)-swift/Current_run.jmh.json Benchmarks/results/swift.json

# What is missing of the other stores does not stop it: the program names them.
bench-program: setup
	-@Scripts/setup $(PEERS)
	cmake -S . -B $(BENCH) -G Ninja -DSHALE_BENCHMARKS=ON -DBUILD_TESTING=OFF
	cmake --build $(BENCH)
	test -x $(BENCH)/venv/bin/python || python3 -m venv $(BENCH)/venv
	$(BENCH)/venv/bin/pip install -q --disable-pip-version-check -r Benchmarks/report/requirements.txt

clean:
	rm -rf $(BUILD) $(DEBIAN) $(ARM64) $(MUSL) $(BUILD)-release $(BENCH) $(BENCH)-swift $(NEWS) .build .build-embedded .build-documentation Tests/Consumer/.build-consumer Tests/Consumer/.build-first Servers/.build
