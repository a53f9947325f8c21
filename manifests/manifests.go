// Package manifests embeds the operator's own part of a release: the files in the folder manifests/ of a release image. The files are Go
// templates over the release image, the cluster profile and the component images. Package payload renders them when it loads a release.
//
// The definitions of ClusterVersion and ClusterOperator come from the github.com/openshift/api module that go.mod pins. The repository has
// them without descriptions, so `go install` builds a complete program. `make build` generates them with descriptions, which
// `kubectl explain` shows, into the folder described.
package manifests

import (
	"embed"
	"io/fs"
)

//go:generate go run ./gen

//go:embed 0000_*.yaml
var files embed.FS

//go:embed all:described
var described embed.FS

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
func FS() fs.FS { return set{} }

// set is the folder of all files. Definitions with descriptions replace those without.
type set struct{}

// Open implements fs.FS.
func (set) Open(name string) (fs.File, error) {
	if f, err := described.Open("described/" + name); err == nil && name != "." {
		return f, nil
	}
	return files.Open(name)
}
