# make          builds build/libshale.so and build/libshale.a
# make demo     does all set-up, then runs the main job on this machine's real data
# make test     does all set-up, then runs every test; ends with "N passed, M failed"
# make bench    measures what the README shows

BUILD ?= build
PACKAGES = cmake ninja-build gcc g++ pkg-config liblz4-dev libxxhash-dev lz4 python3 python3-venv strace

.PHONY: all setup demo test bench clean

all: setup
	cmake -S . -B $(BUILD) -G Ninja
	cmake --build $(BUILD)

setup:
	@Tests/setup $(PACKAGES)

demo: all
	Examples/Demo/run

test: all
	Tests/run $(BUILD)

bench: setup
	cmake -S . -B $(BUILD)-bench -G Ninja -DSHALE_BENCHMARKS=ON
	cmake --build $(BUILD)-bench
	$(BUILD)-bench/Benchmarks/bench --json $(BUILD)-bench/results.json

clean:
	rm -rf $(BUILD) $(BUILD)-bench .build .build-embedded
