#!/usr/bin/env bash
# Follows the README's walk-throughs in a copy of the sources: each patch of tests/walkthroughs/ does what one of them
# says, and its tests must pass there. A patch begins with lines that `patch` skips,
#   Files: how many it touches at most, tests apart      (the structure tests count them)
#   Target: the test programs to build                   (test_core)
#   Test: the tests that must pass, for ctest            (Stream.*)
# usage: tools/walkthroughs.sh [PATCH...]      (default: all; the copy and its build are planted.sh's)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/copy_of_sources.sh

patches=("$@")
[[ $# -gt 0 ]] || patches=(tests/walkthroughs/*.patch)
header() { sed -n "s/^$1: //p;/^--- /q" "$2"; }

copy_sources $(sed -n 's|^+++ b/\(.*\)$|\1|p' "${patches[@]}")
for patch in "${patches[@]}"; do
  patch_file=$(realpath "$patch")
  patch -d "$source" -p1 -F0 -s --no-backup-if-mismatch <"$patch_file"
  for target in $(header Target "$patch"); do
    build_copy "$target" || { cat "$log"; exit 1; }
  done
  test_copy "$(header Test "$patch")" || { cat "$log"; echo "$patch: its tests fail"; exit 1; }
  patch -d "$source" -p1 -s -R <"$patch_file"
  echo "$patch: works"
done
