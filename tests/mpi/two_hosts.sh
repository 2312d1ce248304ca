#!/usr/bin/env bash
# Runs a program as two MPI ranks that see each other as hosts: each in a network and a host-name namespace of its own,
# joined by a veth pair with 2 ms of delay each way; where the kernel can't delay packets (netem), by the program
# `delayed_link`, which can. Exit status 77, with the reason, where that can't be made.
# usage: two_hosts.sh DELAYED_LINK PROGRAM [ARGUMENT]...
set -euo pipefail

say() { echo "two_hosts: $*"; }
skip() { say "$*"; exit 77; }
[[ $(id -u) == 0 ]] || skip "namespaces need root"
for tool in ip tc unshare mpirun; do
  command -v $tool >/dev/null || skip "there is no $tool"
done
mpirun --version | grep -q -e "Open MPI" -e OpenRTE || skip "the script knows OpenMPI's options only"

delayed_link=$1
shift
first=sg-a-$$ second=sg-b-$$
link=
folder=$(mktemp -d)
clean() {
  [[ -z $link ]] || { kill "$link" && wait "$link"; } 2>/dev/null || true
  ip netns delete $first 2>/dev/null || true
  ip netns delete $second 2>/dev/null || true
  rm -rf "$folder"
}
trap clean EXIT

{ ip netns add $first && ip netns add $second; } 2>/dev/null || skip "network namespaces can't be made here"
# `ip netns exec` mounts a /sys of the namespace's own, for which the root must be a mount point: not so in a chroot.
for name in $first $second; do
  why=$(ip netns exec $name unshare --uts hostname sg-probe 2>&1) || skip "namespaces can't be entered here: $why"
done
ip link add sg-a netns $first type veth peer name sg-b netns $second 2>/dev/null || skip "veth pairs can't be made here"
delayed() { ip netns exec "$1" tc qdisc add dev "$2" root netem delay 2ms 2>/dev/null; }
if ! { delayed $first sg-a && delayed $second sg-b; }; then
  ip -n $first link delete sg-a
  : >"$folder/link"
  "$delayed_link" $first sg-a $second sg-b 2 >"$folder/link" 2>&1 &
  link=$!
  for _ in {1..50}; do ! grep -q ready "$folder/link" || break; sleep 0.1; done
  grep -q ready "$folder/link" || skip "neither netem nor TUN devices: $(cat "$folder/link")"
fi
join() {  # namespace, device, its address, the other's
  ip -n "$1" address add "$3" peer "$4" dev "$2"
  ip -n "$1" link set lo up
  ip -n "$1" link set "$2" up
}
join $first sg-a 10.77.0.1 10.77.0.2
join $second sg-b 10.77.0.2 10.77.0.1

# What mpirun would do by ssh: HOST COMMAND...
cat >"$folder/agent" <<AGENT
#!/bin/sh
shift
exec ip netns exec $second unshare --uts sh -c "hostname sg-b; \$*"
AGENT
chmod +x "$folder/agent"

ip netns exec $first unshare --uts sh -c 'hostname sg-a; exec "$@"' sh \
  mpirun --allow-run-as-root --host 10.77.0.1:1,10.77.0.2:1 -n 2 --mca plm_rsh_agent "$folder/agent" \
  --mca oob_tcp_if_include 10.77.0.0/24 --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 "$@"
