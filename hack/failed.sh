#!/usr/bin/env bash
# Lists the tests that failed, and the packages that failed without a failed test: they did not compile, ran out of time or
# panicked. Its arguments are files with the output of `go test -json`.
set -euo pipefail
if [ ! -e "${1:-}" ]; then exit; fi

jq -r --slurp 'map(select(.Action == "fail" and .Package)) | group_by(.Package)[] |
  if any(.Test) then .[] | select(.Test) else .[0] end | "\(.Package) \(.Test // "")"' "$@"
