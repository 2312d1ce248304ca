#!/usr/bin/env bash
# From a bare clone to a trained model: sets up, builds, trains `nano` for about a minute and lets it write.
set -euo pipefail
called_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'USAGE'
usage: tools/quickstart.sh [--data FILE] [--out DIR] [--skip-setup]

  --data FILE   the text to train on (default: the text of this project's own sources)
  --out DIR     where checkpoints, metrics and the receipt go (default: out/quickstart in the project)
  --skip-setup  don't ask apt; the dependencies are there
USAGE
}

data=()
out=$PWD/out/quickstart
own_out=
setup=yes
while [[ $# -gt 0 ]]; do
  case $1 in
    --data | --out)
      [[ $# -gt 1 ]] || { echo "quickstart.sh: $1 needs a value; see --help" >&2; exit 2; }
      [[ $2 == /* ]] && path=$2 || path=$called_from/$2
      if [[ $1 == --data ]]; then data=(--data "$path" --tokenizer chars); else out=$path own_out=yes; fi
      shift 2 ;;
    --skip-setup) setup=no; shift ;;
    --help | -h) usage; exit 0 ;;
    *) echo "quickstart.sh: unknown option '$1'; see --help" >&2; exit 2 ;;
  esac
done

[[ $setup == no ]] || tools/setup.sh
echo "== building (build/)"
cmake --preset release --log-level=WARNING >/dev/null
cmake --build --preset release -j "$(nproc)" --target gpt2

# Two ranks: processes where there is an mpirun, else threads of one process. Either way the same bits.
ranks=(--engine ddp --micro-batch 6)
launch=()
if command -v mpirun >/dev/null; then
  launch=(mpirun -np 2)
  if mpirun --version | grep -q "Open MPI"; then
    launch+=(--oversubscribe)
    [[ $EUID -ne 0 ]] || launch+=(--allow-run-as-root)
  fi
else
  ranks+=(--ranks 2)
fi

# How many steps make about a minute here: the same step, measured.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build/bin/gpt2 bench --size nano --micro-batch 12 --steps 30 --receipt "$work/bench.json" >/dev/null
step_ms=$(sed -n 's/.*"median_step_ms": *\([0-9.]*\).*/\1/p' "$work/bench.json")
steps=$(awk -v ms="$step_ms" 'BEGIN { n = int(50000 / ms / 100) * 100; print (n < 200 ? 200 : (n > 5000 ? 5000 : n)) }')

echo "== training nano on two ranks for $steps steps of about ${step_ms%.*} ms"
if [[ -z $own_out ]]; then rm -rf "$out"; fi  # a folder that the user names is left as it is
"${launch[@]}" build/bin/gpt2 train --size nano "${ranks[@]}" "${data[@]}" --steps "$steps" \
  --lr 1e-3 --min-lr 1e-4 --warmup 100 --beta2 0.99 --weight-decay 0.1 --clip 1.0 --seed 1 \
  --eval-every "$((steps / 4))" --eval-batches 20 --out "$out" --receipt "$out/receipt.json" </dev/null

echo "== the loss over the run"
sed -n 's/.*"step": *\([0-9]*\).*"loss": *\([0-9.]*\).*/\1 \2/p' "$out/metrics.jsonl" |
  awk -v every="$((steps / 10))" '$1 % every == 0 {
    bar = sprintf("%*s", $2 * 10, ""); gsub(" ", "#", bar); printf "  step %5d  loss %.3f  %s\n", $1, $2, bar }'

echo "== what it writes"
build/bin/gpt2 generate --from "$out" --tokens 400 --seed 1

cat <<DONE

== the files
  $out/latest         names the newest checkpoint
  $out/metrics.jsonl  a line for every step
  $out/receipt.json   losses and their bits, hash of the parameters, memory, speed
Next: build/bin/gpt2 train --help, or tools/test.sh
DONE
