#!/usr/bin/env bash
# Runs every fuzz target of the module, one after the other, for the time given (default 20s), and stops at the first
# finding. `go test -fuzz` takes one target of one package at a time, hence the loop.
#
#   hack/fuzz.sh [TIME] [PATTERN]   only targets of which "package target" matches the pattern, a regular expression
#   hack/fuzz.sh --list [PATTERN]   prints them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fuzztime=${1:-20s}
pattern=${2:-.}

# targets prints "package target" for every target that a test file declares.
targets() {
  grep -rnE --include='*_test.go' '^func Fuzz[A-Z]\w*\(' -- cmd pkg test |
    sed -E 's|^(.*)/[^/]+_test\.go:[0-9]+:func (Fuzz\w+)\(.*|./\1 \2|' | sort -u
}

mapfile -t found < <(targets | grep -E -- "$pattern")
if [ ${#found[@]} -eq 0 ]; then
  echo "no fuzz target matches $pattern" >&2
  exit 1
fi
if [ "$fuzztime" = --list ]; then
  printf '%s\n' "${found[@]}"
  exit
fi

for target in "${found[@]}"; do
  read -r package name <<<"$target"
  echo "== $package $name ($fuzztime)"
  # To make an input shorter takes a minute by default, and is done for every input that is new: that leaves no time to
  # look for others.
  if ! go test -run '^$' -fuzz "^$name\$" -fuzztime "$fuzztime" -fuzzminimizetime 1s "$package"; then
    cat >&2 <<TEXT
$package $name failed. If an input broke it, the input is a new file in $package/testdata/fuzz/$name, named above.
Run that again:        go test -run '^$name\$/^FILE\$' $package
Look for it again:     go test -run '^\$' -fuzz '^$name\$' -fuzzminimizetime 1s $package
Once it is mended, commit the file: from then on every test run has it.
TEXT
    exit 1
  fi
done
