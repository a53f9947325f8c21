#!/usr/bin/env bash
# Runs every fuzz target of the module sequentially, each for the given time (default 20s), and stops at the first
# finding. `go test -fuzz` accepts only one target of one package, hence the loop.
#
#   hack/fuzz.sh [TIME] [PATTERN]   only targets whose "package target" matches the regular expression
#   hack/fuzz.sh --list [PATTERN]   lists the targets
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fuzztime=${1:-20s}
pattern=${2:-.}

if [ "$fuzztime" != --list ] && ! [[ $fuzztime =~ ^([0-9.]+(x|ns|us|ms|s|m|h))+$ && $fuzztime =~ [1-9] ]]; then
  echo "FUZZTIME is $fuzztime: set a time such as 20s, or a number of inputs such as 100x" >&2
  exit 2
fi

# targets prints "package target" for every target that a test file declares.
targets() {
  grep -rnE --include='*_test.go' '^func Fuzz[A-Z]\w*\(' -- cmd internal pkg test |
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
  # With -short, the workers start no control plane: each is a process that runs TestMain.
  # By default, minimizing an input takes a minute and happens for every new input. That would leave no time to find other inputs.
  if ! go test -short -run '^$' -fuzz "^$name\$" -fuzztime "$fuzztime" -fuzzminimizetime 1s "$package"; then
    cat >&2 <<TEXT
$package $name failed. If an input caused the failure, it is a new file in $package/testdata/fuzz/$name, named above.
Run the input again:  go test -run '^$name\$/^FILE\$' $package
Search again:         go test -short -run '^\$' -fuzz '^$name\$' -fuzzminimizetime 1s $package
After the fix, commit the file, so that every test run includes it.
TEXT
    exit 1
  fi
done
