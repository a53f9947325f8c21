#!/usr/bin/env bash
# Prepares this machine for `make e2e` and prints two words on stdout. The first is the node image: the one in KIND_NODE_IMAGE, else the
# public image, or our own if the public one cannot be pulled or run. The second is the number of clusters that may run in parallel.
#
#   test/e2e/prepare.sh download  only downloads the public image, or the Debian of our own
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# A cluster that starts or updates needs a processor.
processors=$(nproc)
parallel=${CVO_E2E_PARALLEL:-$((processors < 3 ? processors : 3))}
case $parallel in
*[!0-9]* | 0*)
  echo "e2e: CVO_E2E_PARALLEL is \"$parallel\": set it to the number of parallel clusters, at least 1" >&2
  exit 2
  ;;
esac

# A public image with the minor version of Kubernetes in test/kube/go.mod. A test of test/docs compares them.
public=docker.io/kindest/node:v1.36.4@sha256:099e049362a1526b2db71494e1947aae99bd16290d7c895f2b7ea312e3cbfaed

if ! problem=$(docker info 2>&1 >/dev/null); then
  echo "e2e: Docker is not running: ${problem:-docker info fails}" >&2
  echo "e2e: install Docker and start it (without a service manager: test/e2e/quirks/dockerd.sh start, as root)" >&2
  exit 1
fi
if test/e2e/quirks/dockerd.sh needed && [ "${CVO_E2E_QUIRKS:-}" != 1 ]; then
  echo "e2e: this machine does not grant CAP_SYS_RESOURCE, which privileged containers need: see docs/dev/e2e.md," >&2
  echo "e2e: or start Docker with CVO_E2E_QUIRKS=1 test/e2e/quirks/dockerd.sh start and keep CVO_E2E_QUIRKS=1 set" >&2
  exit 1
fi

# public_runs pulls the public image, unless it cannot run here.
public_runs() {
  [ "${CVO_E2E_QUIRKS:-}" != 1 ] && { docker image inspect "$public" >/dev/null 2>&1 || docker pull "$public" >&2; }
}

if [ "${1:-}" = download ]; then
  [ -n "${KIND_NODE_IMAGE:-}" ] || public_runs || test/e2e/node/build.sh debian
  exit
fi

# Every node needs about a dozen inotify instances. A kubelet that gets none does not join its cluster.
instances=$((64 + 64 * parallel)) limit=$(cat /proc/sys/fs/inotify/max_user_instances)
if [ "$limit" -lt "$instances" ] && ! sysctl -qw fs.inotify.max_user_instances=$instances 2>/dev/null; then
  parallel=1
  echo "e2e: fs.inotify.max_user_instances is $limit, so clusters run sequentially;" >&2
  echo "e2e: to finish in less than half the time: sudo sysctl fs.inotify.max_user_instances=$instances" >&2
fi

test/kube/build.sh kind >&2
if [ -n "${KIND_NODE_IMAGE:-}" ]; then
  image=$KIND_NODE_IMAGE
elif public_runs; then
  image=$public
else
  image=$(test/e2e/node/build.sh)
fi
echo "$image" "$parallel"
