#!/usr/bin/env bash
# Makes this machine ready for `make e2e` and prints two words on stdout: the name of the node image, which is the one that
# KIND_NODE_IMAGE names, else the public one, else our own, where no public one can be pulled or run; and how many clusters
# may run side by side.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Of the release of kind that test/kube/go.mod pins.
public=docker.io/kindest/node:v1.36.4@sha256:099e049362a1526b2db71494e1947aae99bd16290d7c895f2b7ea312e3cbfaed

if ! problem=$(docker info 2>&1 >/dev/null); then
  echo "e2e: no Docker runs here: ${problem:-docker info fails}" >&2
  echo "e2e: install Docker and start it; on a machine without a service manager, root does so with test/e2e/quirks/dockerd.sh start" >&2
  exit 1
fi
if test/e2e/quirks/dockerd.sh needed && [ "${CVO_E2E_QUIRKS:-}" != 1 ]; then
  echo "e2e: this machine withholds CAP_SYS_RESOURCE, without which no privileged container starts here: see docs/dev/e2e.md," >&2
  echo "e2e: or start Docker with CVO_E2E_QUIRKS=1 test/e2e/quirks/dockerd.sh start and keep CVO_E2E_QUIRKS=1 set" >&2
  exit 1
fi

# Every node takes about a dozen instances of inotify, and a kubelet that gets none does not join its cluster.
side_by_side=${CVO_E2E_PARALLEL:-3}
instances=$((64 + 64 * side_by_side)) limit=$(cat /proc/sys/fs/inotify/max_user_instances)
if [ "$limit" -lt "$instances" ] && ! sysctl -qw fs.inotify.max_user_instances=$instances 2>/dev/null; then
  side_by_side=1
  echo "e2e: fs.inotify.max_user_instances is $limit here, so clusters run one after another;" >&2
  echo "e2e: for less than half the time: sudo sysctl fs.inotify.max_user_instances=$instances" >&2
fi

test/kube/build.sh kind >&2
if [ -n "${KIND_NODE_IMAGE:-}" ]; then
  image=$KIND_NODE_IMAGE
elif [ "${CVO_E2E_QUIRKS:-}" != 1 ] && { docker image inspect "$public" >/dev/null 2>&1 || docker pull "$public" >&2; }; then
  image=$public
else
  image=$(test/e2e/node/build.sh)
fi
echo "$image" "$side_by_side"
