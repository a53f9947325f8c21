#!/usr/bin/env bash
# Runs every fuzz target of the module, one after the other, for the time given (default 20s). `go test -fuzz` takes
# one target of one package at a time, hence the two loops.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fuzztime=${1:-20s}
mapfile -t packages < <(
  { grep -rlE --include='*_test.go' '^func Fuzz[A-Z]' pkg cmd test || true; } | xargs -r -n1 dirname | sort -u)
if [ ${#packages[@]} -eq 0 ]; then
  echo "no package has a fuzz target" >&2
  exit 1
fi

failed=()
for package in "${packages[@]}"; do
  list=$(go test -list '^Fuzz' "./$package")
  for target in $(grep '^Fuzz' <<<"$list"); do
    echo "== $package $target ($fuzztime)"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$fuzztime" "./$package" || failed+=("$package $target")
  done
done

if [ ${#failed[@]} -gt 0 ]; then
  echo "these targets failed; the inputs that broke them are under testdata/fuzz of their package:" >&2
  printf '  %s\n' "${failed[@]}" >&2
  exit 1
fi
