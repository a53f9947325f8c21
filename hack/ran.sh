#!/usr/bin/env bash
# Fails if no test passed or failed, and says so unless a package failed, whose error go test shows. It also fails if a test failed in a
# package that passed: go test believes the exit code of the package. Its arguments are files with the output of `go test -json`. With
# --skipped before them, a skipped test suffices.
set -euo pipefail
results='"pass", "fail"'
if [ "${1:-}" = --skipped ]; then
  results+=', "skip"'
  shift
fi

# A killed run ends with a part of a line. Without a file, no test ran.
ran=$({ cat "$@" 2>/dev/null || true; } | jq -R "fromjson? | select(.Action == ($results))" | jq --slurp -r '
  (group_by(.Package) | map(select(any(.Test and .Action == "fail") and any(.Test == null and .Action == "pass"))) | .[0][0].Package) as $hides |
  if $hides then "hidden \($hides)" elif any(.Test) then "tests" elif any(.Action == "fail") then "a failed package" else "" end')
if [ "$ran" = tests ]; then exit; fi
if [[ $ran == hidden* ]]; then echo "a test of ${ran#hidden } failed, and the package exits with 0: its TestMain must exit with the result of m.Run" >&2; fi
if [ -z "$ran" ]; then echo 'no test ran: PKG or TESTFLAGS selects none, or all were skipped' >&2; fi
exit 1
