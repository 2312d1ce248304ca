#!/usr/bin/env bash
# Puts each small mistake of tests/mutants/mutants.list into a copy of the sources and sees that the tests it names
# fail there. The same tests must pass on the copy without it.
# usage: tools/mutants.sh [--check] [WORDS]      (default: all; WORDS: those whose name or file has them)
#   --check  only sees that every text is there exactly once
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/copy_of_sources.sh

check_only=no
if [[ ${1:-} == --check ]]; then check_only=yes; shift; fi
words=${1:-}

names=() targets=() tests=() files=() olds=() news=()
read_list() {
  local line state=name
  while IFS= read -r line || [[ -n $line ]]; do
    case $state:$line in
      name:'' | name:'#'*) ;;
      name:*) names+=("$line"); olds+=(""); news+=(""); state=where ;;
      where:*)
        read -r target pattern file <<<"$line"
        targets+=("$target"); tests+=("$pattern"); files+=("$file"); state=text ;;
      text:'- '*) olds[-1]+="${olds[-1]:+$'\n'}${line:2}" ;;
      text:'+ '*) news[-1]+="${news[-1]:+$'\n'}${line:2}" ;;
      text:'') state=name ;;
      *) echo "mutants.list: neither text nor an empty line: $line" >&2; exit 2 ;;
    esac
  done <tests/mutants/mutants.list
}

# mutate I: the file's text with the mistake on stdout; fails unless the old text is there exactly once.
mutate() {
  local text old=${olds[$1]}
  text=$(cat "${files[$1]}" && echo .)
  local rest=${text#*"$old"}
  [[ $rest != "$text" && $rest != *"$old"* ]] || return 1
  text=${text%%"$old"*}${news[$1]}$rest
  printf '%s' "${text%.}"
}

read_list
chosen=()
for i in "${!names[@]}"; do
  [[ "${names[$i]} ${files[$i]}" == *"$words"* ]] || continue
  mutate "$i" >/dev/null || { echo "${names[$i]}: not exactly once in ${files[$i]}: ${olds[$i]}" >&2; exit 2; }
  chosen+=("$i")
done
[[ ${#chosen[@]} -gt 0 ]] || { echo "mutants.sh: none has \"$words\"" >&2; exit 2; }
[[ $check_only == no ]] || { echo "${#chosen[@]} mutants apply"; exit 0; }

copy_sources "${files[@]}"
declare -A passes=()  # "target tests" that pass without a mistake
survivors=0
for i in "${chosen[@]}"; do
  target=${targets[$i]} pattern=${tests[$i]} file=${files[$i]}
  if [[ -z ${passes[$target $pattern]:-} ]]; then
    build_copy "$target" && test_copy "$pattern" ||
      { cat "$log"; echo "$target, $pattern: fails without a mistake"; exit 1; }
    passes[$target $pattern]=yes
  fi
  mutate "$i" >"$source/$file"
  build_copy "$target" || { cat "$log"; echo "${names[$i]}: doesn't compile"; exit 1; }
  if test_copy "$pattern"; then
    echo "SURVIVES $pattern: ${names[$i]} ($file)"
    survivors=$((survivors + 1))
  else
    echo "caught by $(sed -n '/(Disabled)/d; s/.*[0-9]\+ - \(.*\) (.*/\1/p' "$log" | head -1): ${names[$i]}"
  fi
  cp "$file" "$source/$file"
done
echo "$((${#chosen[@]} - survivors)) of ${#chosen[@]} mutants are caught"
[[ $survivors -eq 0 ]]
