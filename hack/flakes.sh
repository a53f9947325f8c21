#!/usr/bin/env bash
# Runs `make test` several times while other processes keep every core busy, and lists what failed and how often.
#
#   PKG=./pkg/apply hack/flakes.sh 3
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
runs=$1 log=.cache/flakes
rm -rf "$log" && mkdir -p "$log"

for _ in $(seq "$(getconf _NPROCESSORS_ONLN)"); do
  (while :; do :; done) &
done
trap 'kill $(jobs -p)' EXIT

for run in $(seq "$runs"); do
  echo "run $run of $runs"
  if make --no-print-directory test TESTFLAGS="-count 1 ${TESTFLAGS:-}" >"$log/$run.log" 2>&1; then continue; fi
  echo "failed: see $log/$run.log"
  hack/failed.sh .cache/test/*.json >"$log/$run.failed"
  [ -s "$log/$run.failed" ] || echo "make test" >"$log/$run.failed"
done
if compgen -G "$log/*.failed" >/dev/null; then
  sort "$log"/*.failed | uniq -c | sort -rn
  exit 1
fi
echo "nothing failed; runs: $runs"
