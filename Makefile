# make          builds build/libshale.so and build/libshale.a
# make demo     does all set-up, then runs the main job on this machine's real data
# make test     does all set-up, then runs every test; ends with "N passed, M failed"
# make bench    measures what the README shows
# make bench-python  measures the Python binding; OPTIONS="--quick" for a short run

BUILD ?= build
PACKAGES = cmake ninja-build gcc g++ pkg-config liblz4-dev libxxhash-dev lz4 python3 python3-venv strace

.PHONY: all setup demo test bench bench-python clean

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

bench-python: setup
	cmake -S . -B $(BUILD)-bench -G Ninja -DSHALE_BENCHMARKS=ON
	cmake --build $(BUILD)-bench
	python3 -m venv $(BUILD)-bench/venv
	$(BUILD)-bench/venv/bin/pip install -q -r Benchmarks/python/requirements.txt
	SHALE_LIBRARY=$(BUILD)-bench/libshale.so PYTHONPATH=Bindings/Python/src $(BUILD)-bench/venv/bin/python \
		Benchmarks/python/bench.py --floor $(BUILD)-bench/Benchmarks/python_floor.so \
		--json Benchmarks/results/python.json $(OPTIONS)

clean:
	rm -rf $(BUILD) $(BUILD)-bench .build .build-embedded
