#!/usr/bin/env bash
# Builds the operator's image, the base of release images: with docker or podman where one of them runs, otherwise with
# Go alone, as an OCI layout.
#
#   VERSION   stamped into the binary; default that of git
#   IMAGE     name of the image for the container engine; default cvo:<version>
#   PUSH      tag in a registry to push to; default none
#   ENGINE    docker, podman or none; default the first that runs
#   OCI_DIR   where to write the layout; default bin/image
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo unknown)}
image=${IMAGE:-cvo:$(tr -c 'A-Za-z0-9._\n-' - <<<"$version")}
oci=${OCI_DIR:-bin/image}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

engine=${ENGINE:-}
if [ -z "$engine" ]; then
  engine=none
  for candidate in docker podman; do
    if "$candidate" info >/dev/null 2>&1; then engine=$candidate; break; fi
  done
fi

if [ "$engine" != none ]; then
  "$engine" build --build-arg VERSION="$version" -t "${PUSH:-$image}" .
  if [ -n "${PUSH:-}" ]; then "$engine" push "$PUSH"; fi
  exit
fi

go generate ./manifests
arch=$(go env GOARCH)
mkdir -p bin
CGO_ENABLED=0 GOOS=linux go build -trimpath \
  -ldflags "-s -w -X github.com/cluster-version/cvo/pkg/cli.version=$version" -o "bin/cvo-linux-$arch" ./cmd/cvo
go run ./hack/image -binary "bin/cvo-linux-$arch" -arch "$arch" -to-oci "$oci" -as "$version" -to-image "${PUSH:-}"
