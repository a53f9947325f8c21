#!/usr/bin/env bash
# Builds the operator's image, the base of release images, as an OCI layout: from the Dockerfile if a working builder is
# available, otherwise with Go alone. Both images have the same content. The same commit, built the same way with the same
# Go, has the same digest on every machine. Then it builds the component image of the node stage, with Go alone.
#
#   ARCH      Go architectures; default "amd64 arm64". One results in an image, several in an index
#   VERSION   version of the binary and name of the image in the layout; default from git
#   PUSH      tag in a registry to push to, with the credentials of docker login or podman login; default none
#   CA        file with certificates to trust for that registry, in addition to the system's
#   OCI_DIR   where to write the layout; default bin/image
#   NODE_PUSH, NODE_OCI_DIR  the same for the node stage; default none and bin/image-node
#   ENGINE    docker (with buildx), podman, buildah or none; default the first that works
#   BUILDER   image with Go for the build in the Dockerfile; default golang
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo unknown)}
revision=${REVISION:-$(git rev-parse HEAD 2>/dev/null || true)}
name=$(tr -c 'A-Za-z0-9._\n-' - <<<"$version")
oci=${OCI_DIR:-bin/image}
read -ra arches <<<"${ARCH:-amd64 arm64}"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

mkdir -p bin
work=$(mktemp -d bin/image-build-XXXXXX)
trap 'rm -rf "$work"' EXIT

# usable ENGINE succeeds if the engine is installed, runs, and can build images for several architectures. Docker's
# default driver cannot, unless Docker stores its images in containerd.
usable() {
  case $1 in
  docker)
    docker buildx version && docker info &&
      { docker buildx inspect | grep -qE '^Driver: +(docker-container|kubernetes|remote)' ||
        docker info --format '{{.DriverStatus}}' | grep -q containerd.snapshotter; }
    ;;
  podman | buildah) "$1" info ;;
  esac >/dev/null 2>&1
}

# build_with ENGINE writes the layout $work/oci.
build_with() {
  local engine=$1 platforms arguments
  platforms=$(printf ',linux/%s' "${arches[@]}")
  arguments=(--platform "${platforms#,}" --build-arg VERSION="$version" --build-arg REVISION="$revision")
  if [ -n "${BUILDER:-}" ]; then arguments+=(--build-arg BUILDER="$BUILDER"); fi
  if [ "$engine" = docker ]; then
    docker buildx build "${arguments[@]}" --provenance=false --sbom=false \
      --output "type=oci,dest=$work/oci,tar=false,rewrite-timestamp=true" .
    return
  fi
  local list=localhost/cvo-build:$$ status=0
  "$engine" build "${arguments[@]}" --timestamp "$SOURCE_DATE_EPOCH" --manifest "$list" . &&
    "$engine" manifest push --all "$list" "oci:$work/oci:$name" || status=$?
  "$engine" manifest rm "$list" >/dev/null 2>&1 || true
  return $status
}

# compile PROGRAM PACKAGE builds a binary for each architecture and adds the arguments that pack them. PACKAGE has the version. It sets every
# variable that could change them.
compile() {
  local arch
  if [ ! -e "$work/overlay" ]; then go run ./hack/overlay "$work/overlay/overlay.json"; fi
  for arch in "${arches[@]}"; do
    CGO_ENABLED=0 GOOS=linux GOARCH=$arch GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT='' GOFLAGS=-mod=readonly \
      go build -trimpath -buildvcs=false -overlay "$work/overlay/overlay.json" -ldflags "-s -w -X github.com/cluster-version/cvo/$2.version=$version" \
      -o "$work/$1-$arch" "./cmd/$1"
    pack+=(-binary "$arch=$work/$1-$arch")
  done
  pack+=(-version "$version" -revision "$revision")
}

# write LAYOUT TAG packs the image, and pushes it unless TAG is empty.
write() {
  if [ -n "${CA:-}" ]; then pack+=(-certificate-authority "$CA"); fi
  go run ./hack/image "${pack[@]}" -to-oci "$1" -as "$name" -to-image "$2"
}

pack=()
if [ -n "${ENGINE:-}" ]; then
  engine=$ENGINE
  case $engine in
  docker | podman | buildah | none) ;;
  *)
    echo "ENGINE=$engine is not docker, podman, buildah or none" >&2
    exit 2
    ;;
  esac
  if [ "$engine" != none ]; then build_with "$engine"; fi
else
  engine=none
  for candidate in docker podman buildah; do
    if ! command -v "$candidate" >/dev/null || ! usable "$candidate"; then continue; fi
    if build_with "$candidate"; then
      engine=$candidate
      break
    fi
    echo "info: $candidate could not build the Dockerfile, see above: continuing without it" >&2
    rm -rf "$work/oci"
  done
fi

if [ "$engine" = none ]; then
  go generate ./manifests
  compile cvo pkg/cli
else
  pack+=(-from-oci "$work/oci")
fi
write "$oci" "${PUSH:-}"

pack=(-node)
compile cvo-node pkg/node/cli
write "${NODE_OCI_DIR:-bin/image-node}" "${NODE_PUSH:-}"
