#!/usr/bin/env bash
# Lists the five slowest packages and tests. Its arguments are files with the output of `go test -json`.
set -euo pipefail

# slowest HEADING FILTER FILE... lists the events that the filter selects.
slowest() {
  local heading=$1 filter=$2
  shift 2
  printf '%s\n' "$heading"
  jq -r --slurp "map(select((.Action == \"pass\" or .Action == \"fail\") and .Elapsed > 1 and ($filter))) | sort_by(-.Elapsed)[:5][] |
    \"  \(.Elapsed | round) s  \(.Package | ltrimstr(\"github.com/cluster-version/cvo/\")) \(.Test // \"\")\"" "$@"
}

slowest 'the slowest packages:' '.Test == null' "$@"
slowest 'the slowest tests:' '.Test != null and (.Test | contains("/") | not)' "$@"
