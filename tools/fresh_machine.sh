#!/usr/bin/env bash
# Makes a bare Debian 12 (debootstrap's minbase with git and certificates), clones this project's last commit into it
# and runs there the README's two commands, so that nobody has to believe that they work on a fresh machine.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: tools/fresh_machine.sh [--dir DIR] [--mirror URL] [--suite NAME] [--keep] [--] [COMMAND...]

Needs root (mounts and chroot) and debootstrap, which it installs where apt has it. Prints each command's time; its exit
status is that of the first command that fails.

  --dir DIR     where the machine is made (default: a new temporary folder)
  --mirror URL  the distribution's mirror (default: http://deb.debian.org/debian)
  --suite NAME  its suite (default: bookworm)
  --keep        leave the machine's folder
  COMMAND       what to run in the clone, one argument each (default: tools/quickstart.sh tools/test.sh)

  tools/fresh_machine.sh                       both commands; about half an hour on two cores
  tools/fresh_machine.sh 'tools/test.sh --fast'
USAGE
}

dir=
mirror=http://deb.debian.org/debian
suite=bookworm
keep=
commands=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --dir | --mirror | --suite)
      [[ $# -gt 1 ]] || { echo "fresh_machine.sh: $1 needs a value; see --help" >&2; exit 2; }
      declare "${1#--}=$2"
      shift 2 ;;
    --keep) keep=yes; shift ;;
    --help | -h) usage; exit 0 ;;
    --) shift; commands+=("$@"); break ;;
    -*) echo "fresh_machine.sh: unknown option '$1'; see --help" >&2; exit 2 ;;
    *) commands+=("$1"); shift ;;
  esac
done
[[ ${#commands[@]} -gt 0 ]] || commands=(tools/quickstart.sh tools/test.sh)
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && git rev-parse --show-toplevel)

[[ $EUID -eq 0 ]] || { echo "fresh_machine.sh: needs root, to mount and to change the root folder" >&2; exit 1; }
if ! command -v debootstrap >/dev/null; then
  apt-get install -y -q --no-install-recommends debootstrap >/dev/null ||
    { echo "fresh_machine.sh: debootstrap is missing and apt can't install it" >&2; exit 1; }
fi

# Mounts live in a mount namespace of this script alone: they are gone with it, however it ends.
if [[ -z ${SG_FRESH_MACHINE_NAMESPACE:-} ]]; then
  [[ -n $dir ]] || dir=$(mktemp -d)
  [[ ! -e $dir/root ]] || { echo "fresh_machine.sh: $dir/root exists; name another --dir" >&2; exit 2; }
  mkdir -p "$dir"
  status=0
  SG_FRESH_MACHINE_NAMESPACE=yes unshare --mount --propagation private "${BASH_SOURCE[0]}" \
    --dir "$dir" --mirror "$mirror" --suite "$suite" -- "${commands[@]}" || status=$?
  if [[ -n $keep ]]; then
    echo "fresh_machine.sh: the machine is left in $dir/root"
  else
    rm -rf --one-file-system "$dir/root"
  fi
  exit "$status"
fi

root=$dir/root
echo "== a bare machine: $suite in $root"
debootstrap --variant=minbase --include=git,ca-certificates "$suite" "$root" "$mirror" >"$dir/debootstrap.log" 2>&1 ||
  { tail -n 20 "$dir/debootstrap.log" >&2; exit 1; }
mount --bind "$root" "$root"  # a root folder that is a mount point, as tests expect that make network namespaces
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
cp /etc/resolv.conf "$root/etc/resolv.conf"
git clone -q --no-hardlinks "$project" "$root/root/shardgrad"

for command in "${commands[@]}"; do
  echo "== $command"
  begin=$SECONDS
  status=0
  chroot "$root" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    bash -c "cd /root/shardgrad && $command" </dev/null || status=$?
  echo "== $command: exit $status after $(((SECONDS - begin) / 60)) min $(((SECONDS - begin) % 60)) s"
  [[ $status -eq 0 ]] || exit "$status"
done
