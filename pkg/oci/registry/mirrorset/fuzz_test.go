package mirrorset_test

import (
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/oci/registry/mirrorset"
)

// FuzzParse checks that the candidates of accepted mirror sets are valid and unique. The source occurs at most once, and never if it is
// forbidden.
//
//threat:mirror-sets
func FuzzParse(f *testing.F) {
	f.Add([]byte(mirrorSets), "quay.example/ns/repo:1")
	for _, seed := range []string{
		"", "null", "[]", "---\n---", "{apiVersion: v1, kind: List, items: null}", "a: &a [*a, *a]",
		"{apiVersion: config.openshift.io/v1, kind: ImageDigestMirrorSet, spec: {imageDigestMirrors: [{source: '*.example', mirrors: [a, b/c, 'd:1']}]}}",
		"{apiVersion: config.openshift.io/v1, kind: ImageTagMirrorSet, spec: {imageTagMirrors: [{source: docker.io, mirrors: [docker.io/x, index.docker.io/y]}]}}",
		"{apiVersion: config.openshift.io/v1, kind: ImageDigestMirrorSetList, items: [1]}",
	} {
		f.Add([]byte(seed), "quay.example:5000/ns/repo"+anyDigest)
		f.Add([]byte(seed), "busybox")
	}
	f.Fuzz(func(t *testing.T, data []byte, pullspec string) {
		objects, err := mirrorset.Parse(data)
		if err != nil {
			return
		}
		sets, err := mirrorset.New(objects...)
		if err != nil {
			return
		}
		access := registry.New(registry.Options{Mirrors: sets})
		ref, err := access.Reference(pullspec)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, candidate := range access.Candidates(ref) {
			assert.Equal(t, ref.Identifier(), candidate.Identifier())
			assert.False(t, seen[candidate.Name()], "candidate %s occurs twice", candidate)
			seen[candidate.Name()] = true
			_, err := name.NewRepository(candidate.Context().RepositoryStr())
			assert.NoError(t, err)
		}
	})
}
