#!/usr/bin/env bash
# Sets up, builds and tests everything; ends at the first stage that fails. See usage() for the stages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'USAGE'
usage: tools/test.sh [--fast | --long] [--skip-setup]

Installs what is missing, builds, and runs
  1. every test of the release build                                  (build/)
  2. the stream and pool tests under ThreadSanitizer                  (build/tsan/)
  3. the tests labelled `fast` under Address- and UBSanitizer         (build/asan/)
The last lines are ctest's summary of the last stage; any failure ends the script with a non-zero exit status.

  --fast        stage 1 only, and of it only the tests labelled `fast`
  --long        every test in all three builds, then the planted faults (each patch in tests/planted/ must make the
                test it names fail), the mutants (tests/mutants/, likewise) and the README's walk-throughs
                (tests/walkthroughs/), then every test of a build whose matrix products are Eigen's (build/eigen/)
  --skip-setup  don't ask apt; the dependencies are there
USAGE
}

mode=default
setup=yes
for argument in "$@"; do
  case $argument in
    --fast | --long) mode=${argument#--} ;;
    --skip-setup) setup=no ;;
    --help | -h) usage; exit 0 ;;
    *) echo "test.sh: unknown option '$argument'; see --help" >&2; exit 2 ;;
  esac
done

jobs=$(nproc)
stage() { printf '\n== %s\n' "$*"; }

# build PRESET TARGET...: configures where needed and builds; says little unless something fails.
build() {
  local preset=$1
  shift
  cmake --preset "$preset" --log-level=WARNING >/dev/null
  cmake --build --preset "$preset" -j "$jobs" --target "$@"
}

# run PRESET [ctest option]...
run() { ctest --preset "$1" -j "$jobs" "${@:2}"; }

# The ThreadSanitizer of older compilers can't map its shadow where the kernel randomises addresses widely; its
# programs already run at build time, when CMake asks them for their tests.
fixed_addresses=()
if setarch "$(uname -m)" -R true 2>/dev/null; then fixed_addresses=(setarch "$(uname -m)" -R); fi
under_tsan() { "${fixed_addresses[@]}" "$BASH" -euc "$(declare -f build run); jobs=$jobs; $1"; }

[[ $setup == no ]] || tools/setup.sh

stage "release"
if [[ $mode == fast ]]; then
  build release fast_tests
  run release -L fast
  exit 0
fi
build release all
if [[ $mode == long ]]; then export SG_LONG=1; fi  # many more random cases, in this build alone
run release
unset SG_LONG

if [[ $mode == long ]]; then
  stage "every test under ThreadSanitizer"
  under_tsan 'build tsan all; run tsan'
  stage "every test under AddressSanitizer and UndefinedBehaviorSanitizer"
  build asan all
  run asan
  stage "planted faults"
  tools/planted.sh
  stage "mutants"
  tools/mutants.sh
  stage "the README's walk-throughs"
  tools/walkthroughs.sh
  stage "every test with matrix products by Eigen"
  build eigen all
  run eigen
else
  stage "stream and pool tests under ThreadSanitizer"
  under_tsan 'build tsan tsan_tests; run tsan -L tsan'
  stage "fast tests under AddressSanitizer and UndefinedBehaviorSanitizer"
  build asan fast_tests
  run asan -L fast
fi
