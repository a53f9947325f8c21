package compare_test

import (
	"context"
	"fmt"
	"testing/fstest"

	"github.com/cluster-version/cvo/pkg/author/compare"
	"github.com/cluster-version/cvo/pkg/author/inspect"
)

func ExampleReleases() {
	open := func(version, files string) *inspect.Release {
		return inspect.OpenFS(version, fstest.MapFS{
			"release-manifests/release-metadata":    {Data: fmt.Appendf(nil, `{"kind": "cincinnati-metadata-v0", "version": %q}`, version)},
			"release-manifests/image-references":    {Data: fmt.Appendf(nil, `{"apiVersion": "image.openshift.io/v1", "kind": "ImageStream", "metadata": {"name": %q}}`, version)},
			"release-manifests/0000_30_dns_01.yaml": {Data: []byte(files)},
		})
	}
	from := open("1.1.0", `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: dns, name: settings}, data: {ttl: "30", release: 1.1.0}}`)
	to := open("1.2.0", `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: dns, name: settings}, data: {ttl: "60", release: 1.2.0}}`)
	result, err := compare.Releases(context.Background(), from, to, compare.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	// The release's own version is no difference.
	for _, o := range result.Objects {
		for _, f := range o.Fields {
			fmt.Println(o.Change, o.Object, f.Path, f.Old, f.New)
		}
	}
	// Output:
	// changed ConfigMap dns/settings data.ttl 30 60
}
