#!/usr/bin/env bash
# Builds the image of a kind node without pulling an image. It consists of a Debian made by debootstrap, of Kubernetes and related programs
# built from Go modules, and of control plane images made from the same programs.
#
#   test/e2e/node/build.sh             prints the image's name on stdout and writes it to bin/node/image
#   test/e2e/node/build.sh kubernetes  builds only Kubernetes and kind, which takes longest and needs no Docker
#   test/e2e/node/build.sh debian      downloads only Debian, if the image is not built yet
#
#   CVO_E2E_QUIRKS=1            containers in the node are started by test/e2e/quirks/runtime
#   CVO_E2E_DEBIAN_MIRROR       default http://deb.debian.org/debian
#
# The image's tag is a hash of its inputs, so nothing is built twice.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

# This Debian has systemd 252, one of the last versions that run on version 1 control groups.
suite=bookworm
mirror=${CVO_E2E_DEBIAN_MIRROR:-http://deb.debian.org/debian}
packages=systemd,systemd-sysv,dbus,ca-certificates,conntrack,ethtool,iproute2,iptables,kmod,mount,nftables,procps,runc,socat,util-linux
kubernetes=(etcd kube-apiserver kube-controller-manager kube-proxy kube-scheduler kubeadm kubectl kubelet)
tools=(containerd containerd-shim-runc-v2 ctr coredns host-local loopback portmap ptp)

build_kubernetes() { test/kube/build.sh "${kubernetes[@]}" kind; }
if [ "${1:-}" = kubernetes ]; then
  build_kubernetes
  exit
fi

node=test/e2e/node
out=$PWD/bin/node
mkdir -p "$out"

# Only the requested output goes to stdout, everything else to stderr.
exec 3>&1 1>&2

digest() { sha256sum | cut -c 1-16; }

# package prints the Go package of a tool in $node/tools/go.mod.
package() {
  case $1 in
  coredns) echo github.com/coredns/coredns ;;
  host-local) echo github.com/containernetworking/plugins/plugins/ipam/host-local ;;
  loopback | ptp) echo "github.com/containernetworking/plugins/plugins/main/$1" ;;
  portmap) echo github.com/containernetworking/plugins/plugins/meta/portmap ;;
  *) echo "github.com/containerd/containerd/v2/cmd/$1" ;;
  esac
}

version=$(sed -n 's/^[[:space:]]*k8s\.io\/kubernetes \(v[0-9.]*\).*/\1/p' test/kube/go.mod)
base=cvo-node-base:$(echo "$suite $packages" | digest)
# The main module affects the image only by the version of its Kubernetes client.
image=cvo-node:$version-$({
  go version
  echo "$base quirks=${CVO_E2E_QUIRKS:-}"
  grep 'k8s.io/client-go ' go.mod
  cat test/kube/{go.mod,go.sum,build.sh} $(find $node test/e2e/quirks/runtime -type f | LC_ALL=C sort)
} | digest)

finish() {
  # Remove images of earlier inputs unless a cluster still uses them.
  local old
  for old in $(docker images --format '{{.Repository}}:{{.Tag}}' cvo-node; docker images --format '{{.Repository}}:{{.Tag}}' cvo-node-base); do
    if [ "$old" != "$image" ] && [ "$old" != "$base" ]; then docker rmi "$old" >/dev/null 2>&1 || true; fi
  done
  echo "$image" >"$out/image"
  echo "$image" >&3
}

if docker image inspect "$image" >/dev/null 2>&1; then
  finish
  exit
fi

container=
cleanup() {
  if [ -n "$container" ]; then docker rm -fv "$container" >/dev/null; fi
  rm -rf "$out/tree" "$out/images"
}
trap cleanup EXIT

# step NAME COMMAND... runs the command and prints how long it took.
step() {
  local start=$SECONDS name=$1
  shift
  "$@"
  echo "node-image: $name in $((SECONDS - start)) s"
}

build_base() {
  if docker image inspect "$base" >/dev/null 2>&1; then return; fi
  local sudo=() tree=$out/debian
  if [ "$(id -u)" -ne 0 ]; then sudo=(sudo); fi
  if ! command -v debootstrap >/dev/null; then
    echo "debootstrap is missing: install Debian's package of that name, or set KIND_NODE_IMAGE to a kind node image"
    return 1
  fi
  "${sudo[@]}" rm -rf "$tree"
  if ! "${sudo[@]}" debootstrap --variant=minbase --include="$packages" "$suite" "$tree" "$mirror" >"$out/debootstrap.log" 2>&1; then
    tail -n 20 "$out/debootstrap.log"
    return 1
  fi
  "${sudo[@]}" tar -C "$tree" --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' --exclude='./usr/share/doc/*' \
    --exclude='./usr/share/locale/*' -c . | docker import - "$base" >/dev/null
  "${sudo[@]}" rm -rf "$tree"
}

# Tools have a separate module, because containerd and Kubernetes do not always agree on versions.
build_programs() {
  build_kubernetes
  mkdir -p "$out/bin"
  local tool
  for tool in "${tools[@]}"; do
    (cd $node/tools && GOWORK=off CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$out/bin/$tool" "$(package "$tool")")
  done
  CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$out/bin/" ./$node/pause ./$node/podnetwork
  CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$out/bin/runtime" ./test/e2e/quirks/runtime
}

# control_plane_image NAME PROGRAM... saves an image of programs as a file. The image runs the first program.
control_plane_image() {
  local name=$1 tree=$out/images/tree program
  shift
  mkdir -p "$tree/usr/local/bin" "$tree/tmp"
  for program in "$@"; do install -m 755 "$program" "$tree/usr/local/bin/"; done
  if [[ $name = */kube-proxy:* ]]; then
    # It calls programs that are not static. They come from Debian, with the libraries to which they are linked.
    docker run --rm --entrypoint sh "$base" -c '
      programs="/usr/sbin/xtables-legacy-multi /usr/sbin/xtables-nft-multi /usr/sbin/nft /usr/sbin/conntrack /usr/bin/kmod /usr/sbin/ipset"
      libraries=$(ldd $(ls $programs 2>/dev/null) /usr/lib/*/xtables/*.so 2>/dev/null | grep -o "/[^ :]*\.so[^ :]*" | sort -u)
      tar -C / -ch $(ls $programs 2>/dev/null) $libraries /usr/lib/*/xtables /etc/protocols 2>/dev/null' | tar -C "$tree" -x
    for program in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
      ln -s xtables-nft-multi "$tree/usr/sbin/$program"
    done
    ln -s kmod "$tree/usr/bin/modprobe"
  fi
  tar -C "$tree" --owner 0 --group 0 --sort=name --mtime=@0 -c . |
    docker import --change "ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin" \
      --change "ENTRYPOINT [\"/usr/local/bin/$(basename "$1")\"]" - "$name" >/dev/null
  docker save "$name" >"$out/images/$(basename "$1").tar"
  docker rmi -f "$name" >/dev/null
  rm -rf "$tree"
}

build_images() {
  rm -rf "$out/images"
  local name
  while read -r name; do
    case $name in
    */coredns/*) control_plane_image "$name" "$out/bin/coredns" ;;
    */pause:*)
      pause=$name
      control_plane_image "$name" "$out/bin/pause"
      ;;
    */etcd:*) control_plane_image "$name" bin/kube/etcd ;;
    *) control_plane_image "$name" "bin/kube/$(sed 's|.*/||; s|:.*||' <<<"$name")" ;;
    esac
  done < <(bin/kube/kubeadm config images list --kubernetes-version "$version")
  control_plane_image localhost/podnetwork:node "$out/bin/podnetwork"
}

# collect copies everything that the node has in addition to Debian.
collect() {
  local tree=$out/tree
  rm -rf "$tree"
  mkdir -p "$tree"/{usr/bin,usr/local/bin,opt/cni/bin,kind,etc/systemd/system/multi-user.target.wants}
  cp -R $node/files/. "$tree"
  sed -i "s|@PAUSE@|$pause|" "$tree/etc/containerd/config.toml"
  local tool
  for tool in kubeadm kubectl kubelet; do install -m 755 "bin/kube/$tool" "$tree/usr/bin/"; done
  for tool in containerd containerd-shim-runc-v2 ctr; do install -m 755 "$out/bin/$tool" "$tree/usr/local/bin/"; done
  for tool in host-local loopback portmap ptp; do install -m 755 "$out/bin/$tool" "$tree/opt/cni/bin/"; done
  for tool in containerd kubelet; do
    ln -s "/etc/systemd/system/$tool.service" "$tree/etc/systemd/system/multi-user.target.wants/"
  done
  # A container has no login terminals, no devices to manage and no power button.
  for tool in console-getty getty@ systemd-logind systemd-udevd systemd-udev-trigger systemd-timesyncd e2scrub_reap \
    systemd-modules-load systemd-sysctl; do
    ln -s /dev/null "$tree/etc/systemd/system/$tool.service"
  done
  for tool in dev-hugepages.mount sys-kernel-debug.mount sys-kernel-tracing.mount apt-daily.timer apt-daily-upgrade.timer; do
    ln -s /dev/null "$tree/etc/systemd/system/$tool"
  done
  echo "$version" >"$tree/kind/version"
}

assemble() {
  container=$(docker run -d --privileged --init --stop-signal SIGRTMIN+3 --entrypoint sleep "$base" infinity)
  tar -C "$out/tree" --owner 0 --group 0 -c . | docker exec -i "$container" tar -C / --keep-directory-symlink -x
  if [ "${CVO_E2E_QUIRKS:-}" = 1 ]; then
    docker exec "$container" mv /usr/sbin/runc /usr/sbin/runc.real
    docker cp "$out/bin/runtime" "$container:/usr/sbin/runc" >/dev/null
  fi
  docker exec -i "$container" bash -euc '
    containerd >/tmp/containerd.log 2>&1 &
    for _ in $(seq 100); do
      if ctr version >/dev/null 2>&1; then break; fi
      sleep 0.1
    done'
  local file
  for file in "$out"/images/*.tar; do
    docker exec -i "$container" ctr -n k8s.io images import --no-unpack --digests - <"$file" >/dev/null 2>"$out/import.log" || {
      cat "$out/import.log"
      return 1
    }
  done
  docker exec "$container" bash -euc '
    pkill containerd
    for _ in $(seq 100); do
      if ! pgrep -x containerd >/dev/null; then break; fi
      sleep 0.1
    done
    rm -rf /tmp/* /run/containerd'
  docker commit --change 'ENV container=docker' \
    --change 'ENTRYPOINT ["/usr/local/sbin/entrypoint"]' --change 'CMD []' "$container" "$image" >/dev/null
}

echo "node-image: building $image"
pause=
step "Debian" build_base
if [ "${1:-}" = debian ]; then exit; fi
step "programs" build_programs
step "images of the control plane" build_images
step "the node's files" collect
step "the image" assemble
finish
