// Package manifests embeds the operator's own part of a release: the files in the folder manifests/ of a release image. The files are Go
// templates over the release image, the cluster profile and the component images. Package payload renders them when it loads a release.
//
// The set includes the CustomResourceDefinitions of ClusterVersion and ClusterOperator, but they are not in the repository:
// `go generate ./manifests` generates them from the github.com/openshift/api module that go.mod pins. A binary built without them has an
// incomplete set, see Complete.
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

// Monitoring returns the manifests with which Prometheus (of the Prometheus Operator) monitors the version operator, as a flat folder:
// access, a ServiceMonitor and alerts. They are not part of the set, because not every cluster serves these kinds. They are not templates,
// so braces in alerts stay unchanged.
func Monitoring() fs.FS {
	sub, err := fs.Sub(monitoring, "monitoring")
	if err != nil {
		panic(err) // the name of the folder is invalid
	}
	return sub
}

// FS returns the operator's own set as a flat folder.
func FS() fs.FS { return files }

// Complete reports whether the set in this binary includes the CustomResourceDefinitions. Without them, an empty cluster cannot store the
// ClusterVersion that starts an installation.
func Complete() bool {
	found, err := fs.Glob(files, "*_clusterversions.crd.yaml")
	return err == nil && len(found) > 0
}
