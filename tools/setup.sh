#!/usr/bin/env bash
# Installs what the build and the tests need from the distribution (Debian 12, Ubuntu 22.04 or newer).
# Asks apt only when something is missing, so a second run takes a fraction of a second.
set -euo pipefail

if [[ ${1:-} == --help ]]; then
  echo "usage: tools/setup.sh    install the compiler, CMake and libraries that are missing (apt; sudo where not root)"
  exit 0
fi
if [[ $# -gt 0 ]]; then
  echo "setup.sh: unknown option '$1'; see --help" >&2
  exit 2
fi

packages=(
  g++ cmake ninja-build patch       # compiler and build; patch plants the faults of tests/planted
  libeigen3-dev                     # matrix products where oneDNN is missing, and the tests' reference
  libdnnl-dev ocl-icd-opencl-dev    # oneDNN; its CMake file asks for OpenCL's
  libspdlog-dev libfmt-dev          # log and messages
  nlohmann-json3-dev                # receipts, metrics, manifests
  libssl-dev                        # SHA-256
  libcli11-dev                      # command lines
  libgtest-dev                      # tests
  iproute2                          # hosts of their own for the MPI tests: network namespaces
)

# Prints the packages among its arguments that aren't installed.
missing() {
  local installed
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p') || true
  comm -23 <(printf '%s\n' "$@" | sort -u) <(sort -u <<<"$installed")
}

# Says what would have to be installed by hand, and ends.
give_up() {
  printf 'setup.sh: %s\n%s\n  %s\n' "$1" \
    'Install these (or what your system calls them), then run with --skip-setup:' "$2" >&2
  exit 1
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  give_up "this system has no apt" "${packages[*]} and an MPI"
fi
# Any MPI will do: OpenMPI joins the list unless MPICH is here.
[[ -z $(missing libmpich-dev) ]] || packages+=(libopenmpi-dev openmpi-bin)

wanted=$(missing "${packages[@]}" | paste -sd ' ')
[[ -n $wanted ]] || exit 0

as_root=()
if [[ $EUID -ne 0 ]]; then
  command -v sudo >/dev/null || give_up "not root, and there is no sudo" "$wanted"
  as_root=(sudo)
  [[ -t 0 ]] || as_root+=(-n)  # nobody is there to type a password
  "${as_root[@]}" true || give_up "not root, and sudo refuses" "$wanted"
fi

# Asks nothing, and waits up to ten minutes for another apt: DPkg::Lock::Timeout covers dpkg's lock, but not those
# of the package lists and of the archive, so a run that met one of these is tried again.
apt() {
  local log
  log=$(mktemp)
  for _ in {1..120}; do
    if "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C \
      apt-get -y -q -o DPkg::Lock::Timeout=600 "$@" </dev/null 2> >(tee "$log" >&2); then
      rm -f "$log"
      return 0
    fi
    grep -q 'Could not get lock' "$log" || break
    sleep 5
  done
  rm -f "$log"
  return 1
}
echo "setup.sh: installing $wanted"
apt update || give_up "apt-get update failed" "$wanted"
# shellcheck disable=SC2086  # one word per package
apt install --no-install-recommends $wanted || give_up "apt-get install failed" "$wanted"
