#!/usr/bin/env bash
# Runs a program as two MPI ranks that see each other as hosts: each in a network and a host-name namespace of its own,
# joined by a veth pair with 2 ms of delay each way. Exit status 77, with the reason, where that can't be made.
# usage: two_hosts.sh PROGRAM [ARGUMENT]...
set -euo pipefail

say() { echo "two_hosts: $*"; }
skip() { say "$*"; exit 77; }
[[ $(id -u) == 0 ]] || skip "namespaces need root"
for tool in ip tc unshare mpirun; do
  command -v $tool >/dev/null || skip "there is no $tool"
done
mpirun --version | grep -q -e "Open MPI" -e OpenRTE || skip "the script knows OpenMPI's options only"

first=sg-a-$$ second=sg-b-$$
folder=$(mktemp -d)
clean() {
  ip netns delete $first 2>/dev/null || true
  ip netns delete $second 2>/dev/null || true
  rm -rf "$folder"
}
trap clean EXIT

{ ip netns add $first && ip netns add $second; } 2>/dev/null || skip "network namespaces can't be made here"
ip link add sg-a netns $first type veth peer name sg-b netns $second 2>/dev/null || skip "veth pairs can't be made here"
join() {  # namespace, device, address
  ip -n "$1" address add "$3/24" dev "$2"
  ip -n "$1" link set lo up
  ip -n "$1" link set "$2" up
  ip netns exec "$1" tc qdisc add dev "$2" root netem delay 2ms 2>/dev/null || say "no delay: this kernel has no netem"
}
join $first sg-a 10.77.0.1
join $second sg-b 10.77.0.2

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
