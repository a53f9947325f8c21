#!/usr/bin/env bash
# Packs the Helm chart as bin/chart/cluster-version-operator-VERSION.tgz, with the CustomResourceDefinitions of the
# pinned API module. The same commit results in the same file.
#
#   VERSION    version of the chart and the operator; default from git
#   CHART_DIR  where to write; default bin/chart
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo unknown)}
# Helm requires a semantic version; an untagged commit sorts before the first release.
chart=${version#v}
if ! [[ $chart =~ ^[0-9]+\.[0-9]+\.[0-9]+([-+].*)?$ ]]; then chart=0.0.0-$(tr -c 'A-Za-z0-9\n-' - <<<"g$version"); fi
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
to=${CHART_DIR:-bin/chart}
mkdir -p "$to"

go generate ./manifests
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -R charts/cluster-version-operator "$work/"
mkdir "$work/cluster-version-operator/crds"
for folder in manifests manifests/described; do cp "$folder"/*.crd.yaml "$work/cluster-version-operator/crds/"; done
sed -i.old -e "s/^version: .*/version: $chart/" -e "s/^appVersion: .*/appVersion: \"$version\"/" "$work/cluster-version-operator/Chart.yaml"
rm "$work/cluster-version-operator/Chart.yaml.old"
find "$work" -type d -exec chmod 755 {} + -o -type f -exec chmod 644 {} +

file=$to/cluster-version-operator-$chart.tgz
tar --create --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
  -C "$work" cluster-version-operator | gzip -9n >"$file.new"
mv "$file.new" "$file"
echo "$file"
