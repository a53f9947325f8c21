// Package charts holds the Helm chart of the version operator, for clusters that are not installed by `cvo install`.
// Its templates are made of the operator's own manifests, so that there is one truth; only what an administrator chooses
// is written here. `make chart` packs it, with the CustomResourceDefinitions.
package charts

import "embed"

//go:generate go run ./gen

// Folder is where FS has the chart.
const Folder = "cluster-version-operator"

// FS is the chart without the CustomResourceDefinitions.
//
//go:embed all:cluster-version-operator
var FS embed.FS
