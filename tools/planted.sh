#!/usr/bin/env bash
# Plants each fault of tests/planted/*.patch in a copy of the sources and sees that the test it names fails there:
# a test that passes on broken code proves nothing. A patch begins with two lines that `patch` skips,
#   Target: the test program to build          (test_core)
#   Test: the tests that must fail, for ctest  (Stream.*)
# and the same tests must pass on the copy without the fault.
# usage: tools/planted.sh [PATCH...]      (default: all; the copy and its build stay in build/planted/)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
. tools/copy_of_sources.sh

patches=("$@")
if [[ $# -eq 0 ]]; then
  shopt -s nullglob
  patches=(tests/planted/*.patch)
fi
[[ ${#patches[@]} -gt 0 ]] || { echo "planted.sh: no patches in tests/planted/"; exit 0; }

copy_sources $(sed -n 's|^+++ b/\(.*\)$|\1|p' "${patches[@]}")

header() { sed -n "s/^$1: //p;/^--- /q" "$2"; }
build() { build_copy "$1" || { cat "$log"; exit 1; }; }  # a build that fails ends the script

# Without a fault all the tests pass, together: a fault's build is then one build, not two.
names=()
for patch in "${patches[@]}"; do
  build "$(header Target "$patch")"
  names+=("$(header Test "$patch")")
done
test_copy "$(IFS='|'; echo "${names[*]}")" || { cat "$log"; echo "a test fails without a fault"; exit 1; }

uncaught=0
for patch in "${patches[@]}"; do
  tests=$(header Test "$patch")
  patch_file=$(realpath "$patch")
  patch -d "$source" -p1 -F0 -s --no-backup-if-mismatch <"$patch_file"
  build "$(header Target "$patch")"
  if test_copy "$tests"; then
    echo "$patch: NOT CAUGHT by $tests"
    uncaught=1
  else
    echo "$patch: caught by $tests"
  fi
  patch -d "$source" -p1 -s -R <"$patch_file"
done
exit $uncaught
