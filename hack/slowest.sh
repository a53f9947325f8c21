#!/usr/bin/env bash
# Lists the five slowest packages and tests, if they took more than a second. Its arguments are files with the output of `go test -json`.
set -euo pipefail
if [ ! -e "${1:-}" ]; then exit; fi

# slowest HEADING FILTER FILE... lists the events that the filter selects.
slowest() {
  local heading=$1 filter=$2 list
  shift 2
  list=$(jq -R 'fromjson?' "$@" | jq -r --slurp "map(select((.Action == \"pass\" or .Action == \"fail\") and .Elapsed > 1 and ($filter))) | sort_by(-.Elapsed)[:5][] |
    \"  \(.Elapsed | round) s  \(.Package | ltrimstr(\"github.com/cluster-version/cvo/\")) \(.Test // \"\")\"")
  if [ -n "$list" ]; then printf '%s\n%s\n' "$heading" "$list"; fi
}

slowest 'the slowest packages:' '.Test == null' "$@"
slowest 'the slowest tests:' '.Test != null and (.Test | contains("/") | not)' "$@"
