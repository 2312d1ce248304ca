# For scripts that try faults in a copy of the sources, build/planted/, which stays: sourced from the project's root.
#   copy_sources FILE...      the copy is what is here; FILEs, which had a fault in it, count as changed
#   build_copy TARGET         its output in $log; fails where that doesn't build
#   test_copy TESTS           what ctest selects by -R; fails where one fails
copy=$PWD/build/planted
source=$copy/source
log=$copy/log

# Files keep their times, so that only what changed since the last run is built again.
copy_sources() {
  mkdir -p "$source"
  find "$source" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
  tar -c --exclude=./build --exclude=./out --exclude=./.git . | tar -x -C "$source"
  (cd "$source" && touch -c "$@")
  cmake -S "$source" -B "$source/build" -G Ninja -DCMAKE_BUILD_TYPE=Release --log-level=WARNING >/dev/null
}
build_copy() { cmake --build "$source/build" -j "$(nproc)" --target "$1" >"$log" 2>&1; }
test_copy() {
  ctest --test-dir "$source/build" -R "$1" --no-tests=error --stop-on-failure --timeout 300 >"$log" 2>&1
}
