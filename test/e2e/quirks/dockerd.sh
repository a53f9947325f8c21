#!/usr/bin/env bash
# Starts and stops dockerd on machines without a service manager.
#
#   test/e2e/quirks/dockerd.sh start|stop|needed
#
#   CVO_E2E_QUIRKS=1       containers are started by test/e2e/quirks/runtime; "needed" reports whether this machine needs it
#   CVO_E2E_DOCKER_ROOT    the folder for images and containers; default /var/lib/docker
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
    echo "dockerd is already running"
    return
  fi
  if [ "$(id -u)" -ne 0 ]; then
    echo "dockerd needs root: start it with your service manager, or run this script as root" >&2
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
      echo "dockerd is running; log: $state/log"
      return
    fi
    if ! kill -0 "$pid" 2>/dev/null; then break; fi
    sleep 0.5
  done
  echo "dockerd did not start; end of $state/log:" >&2
  tail -n 20 "$state/log" >&2
  return 1
}

stop() {
  local pid
  if ! pid=$(cat "$state/pid" 2>/dev/null); then
    echo "this script has started no dockerd"
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
