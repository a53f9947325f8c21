#!/usr/bin/env bash
# Starts a dockerd where no service manager does it, and stops it again.
#
#   test/e2e/quirks/dockerd.sh start|stop|needed
#
#   CVO_E2E_QUIRKS=1       containers are started by test/e2e/quirks/runtime; "needed" says whether this machine needs it
#   CVO_E2E_DOCKER_ROOT    where images and containers are kept; default /var/lib/docker
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

state=$PWD/bin/dockerd
root=${CVO_E2E_DOCKER_ROOT:-/var/lib/docker}

# Bit 24 of the bounding set is CAP_SYS_RESOURCE.
needed() {
  local bounding
  bounding=$(sed -n 's/^CapBnd:[[:space:]]*//p' /proc/self/status)
  (((16#$bounding >> 24 & 1) == 0))
}

start() {
  if docker info >/dev/null 2>&1; then
    echo "a dockerd runs already"
    return
  fi
  if [ "$(id -u)" -ne 0 ]; then
    echo "dockerd must be started by root: start it with your system's means, or run this as root" >&2
    return 1
  fi
  mkdir -p "$state"
  local config=()
  if [ "${CVO_E2E_QUIRKS:-}" = 1 ]; then
    CGO_ENABLED=0 go build -trimpath -o "$state/runtime" ./test/e2e/quirks/runtime
    printf '{"default-runtime": "quirks", "runtimes": {"quirks": {"path": "%s"}}}\n' "$state/runtime" >"$state/daemon.json"
    config=(--config-file "$state/daemon.json")
  fi
  nohup dockerd "${config[@]}" --data-root "$root" --pidfile "$state/pid" >"$state/log" 2>&1 </dev/null &
  local pid=$!
  for _ in $(seq 120); do
    if docker info >/dev/null 2>&1; then
      echo "dockerd runs, its log is $state/log"
      return
    fi
    if ! kill -0 "$pid" 2>/dev/null; then break; fi
    sleep 0.5
  done
  echo "dockerd did not start; the end of $state/log:" >&2
  tail -n 20 "$state/log" >&2
  return 1
}

stop() {
  local pid
  if ! pid=$(cat "$state/pid" 2>/dev/null); then
    echo "no dockerd of ours runs"
    return
  fi
  kill "$pid"
  for _ in $(seq 120); do
    if ! kill -0 "$pid" 2>/dev/null; then return; fi
    sleep 0.5
  done
  echo "dockerd ($pid) does not stop" >&2
  return 1
}

case ${1:-} in
start | stop | needed) "$1" ;;
*)
  echo "usage: $0 start|stop|needed" >&2
  exit 2
  ;;
esac
