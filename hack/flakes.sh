#!/usr/bin/env bash
# Runs `make test` several times while other processes keep every core busy, and lists the failed tests and how often they failed.
#
#   PKG=./pkg/apply hack/flakes.sh 3
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
runs=$1 TESTFLAGS=${TESTFLAGS:-} log=.cache/flakes${PKG:+-selected} results=.cache/test${PKG:+-selected}
if ! [[ $runs =~ ^[1-9][0-9]*$ ]]; then
  echo "N is $runs: set the number of runs, such as make flakes N=3" >&2
  exit 2
fi
make --no-print-directory commands
mkdir -p .cache
exec 8>"$log.lock"
flock -n 8 || { echo 'another make flakes runs in this clone' >&2 && exit 2; }
rm -rf "$log" && mkdir -p "$log"
make --no-print-directory packages crds kube-tools

for _ in $(seq "$(getconf _NPROCESSORS_ONLN)"); do
  (while kill -0 $$; do :; done) >/dev/null 2>&1 8>&- &
done
trap 'kill $(jobs -p)' EXIT

# list lists the failed tests and how often they failed.
list() { sort "$log"/*.failed | uniq -c | sort -rn; }

for run in $(seq "$runs"); do
  start=$SECONDS
  if ! flock -w 60 "$results.lock" rm -rf "$results"; then
    echo 'other tests run in this clone: wait, or use another clone' >&2
    if compgen -G "$log/*.failed" >/dev/null; then list; fi
    exit 2
  fi
  echo "run $run of $runs of make test ${PKG:-}, log: $log/$run.log"
  # make expands the value of a variable once more, so each $ is doubled.
  if make --no-print-directory test TESTFLAGS="-count 1 ${TESTFLAGS//\$/\$\$}" >"$log/$run.log" 2>&1 8>&-; then
    echo "passed after $((SECONDS - start)) s"
    continue
  fi
  echo "failed after $((SECONDS - start)) s"
  if ! go run ./hack/results failed "$results"/*.json >"$log/$run.failed" ||
    { [ ! -s "$log/$run.failed" ] && ! go run ./hack/results ran "$results"/*.json; }; then
    tail -n 20 "$log/$run.log" >&2
    echo "see $log/$run.log" >&2
    list
    exit 2
  fi
  [ -s "$log/$run.failed" ] || echo "make test" >"$log/$run.failed"
done
if compgen -G "$log/*.failed" >/dev/null; then
  list
  exit 1
fi
echo "nothing failed; runs: $runs"
