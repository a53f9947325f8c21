// Package manifests holds the operator's own part of a release: what lies in the folder manifests/ of a release image.
// The files are Go templates over the release image, the cluster profile and the component images; they are rendered
// when a payload is loaded, not here.
//
// The CustomResourceDefinitions of ClusterVersion and ClusterOperator belong to the set, but are not in the repository:
// `go generate ./manifests` makes them of those in the github.com/openshift/api module that go.mod pins. A binary built
// before that carries the set without them, see Complete.
package manifests

import (
	"embed"
	"io/fs"
)

//go:generate go run ./gen

//go:embed 0000_*.yaml
var files embed.FS

//go:embed monitoring/0000_*.yaml
var monitoring embed.FS

// Monitoring is what has a Prometheus that is run by the Prometheus Operator watch the version operator, as a flat
// folder: access, a ServiceMonitor, alerts. It is no part of the set, because only some clusters serve the kinds; nor
// are its files templates, so that what alerts have in braces stays as it is.
func Monitoring() fs.FS {
	sub, err := fs.Sub(monitoring, "monitoring")
	if err != nil {
		panic(err) // the name of the folder is no path
	}
	return sub
}

// FS is the operator's own set as a flat folder.
func FS() fs.FS { return files }

// Complete reports whether the set in this binary has the CustomResourceDefinitions, without which a bare cluster
// cannot hold the ClusterVersion that an installation starts from.
func Complete() bool {
	found, err := fs.Glob(files, "*_clusterversions.crd.yaml")
	return err == nil && len(found) > 0
}
