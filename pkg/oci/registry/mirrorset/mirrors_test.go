package mirrorset_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	configv1 "github.com/openshift/api/config/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/oci/registry/mirrorset"
)

// anyDigest is an arbitrary digest.
var anyDigest = "@sha256:" + strings.Repeat("0123456789abcdef", 4)

func mirrors(t testing.TB, objects ...runtime.Object) mirrorset.Mirrors {
	t.Helper()
	m, err := mirrorset.New(objects...)
	require.NoError(t, err)
	return m
}

func imageMirrors(locations []string) []configv1.ImageMirror {
	list := make([]configv1.ImageMirror, 0, len(locations))
	for _, l := range locations {
		list = append(list, configv1.ImageMirror(l))
	}
	return list
}

func digestSet(object, source string, locations ...string) *configv1.ImageDigestMirrorSet {
	return &configv1.ImageDigestMirrorSet{
		ObjectMeta: metav1.ObjectMeta{Name: object},
		Spec: configv1.ImageDigestMirrorSetSpec{ImageDigestMirrors: []configv1.ImageDigestMirrors{{
			Source: source, Mirrors: imageMirrors(locations),
		}}},
	}
}

func never(set *configv1.ImageDigestMirrorSet) *configv1.ImageDigestMirrorSet {
	set.Spec.ImageDigestMirrors[0].MirrorSourcePolicy = configv1.NeverContactSource
	return set
}

func tagSet(object, source string, locations ...string) *configv1.ImageTagMirrorSet {
	return &configv1.ImageTagMirrorSet{
		ObjectMeta: metav1.ObjectMeta{Name: object},
		Spec: configv1.ImageTagMirrorSetSpec{ImageTagMirrors: []configv1.ImageTagMirrors{{
			Source: source, Mirrors: imageMirrors(locations),
		}}},
	}
}

func contentPolicy(object, source string, locations ...string) *operatorv1alpha1.ImageContentSourcePolicy {
	return &operatorv1alpha1.ImageContentSourcePolicy{
		ObjectMeta: metav1.ObjectMeta{Name: object},
		Spec: operatorv1alpha1.ImageContentSourcePolicySpec{RepositoryDigestMirrors: []operatorv1alpha1.RepositoryDigestMirrors{{
			Source: source, Mirrors: locations,
		}}},
	}
}

//threat:mirror-source-tried
func TestCandidatesFollowTheMirrorSets(t *testing.T) {
	for _, tt := range []struct {
		name     string
		objects  []runtime.Object
		pullspec string
		want     []string // "source" stands for the source
	}{
		{"it returns only the source without mirror sets", nil, "quay.example/ns/repo" + anyDigest, []string{"source"}},
		{
			"it returns the mirrors in order, then the source",
			[]runtime.Object{digestSet("x", "quay.example/ns", "b.example/copy", "a.example:5000/copy/deep", "c.example")},
			"quay.example/ns/repo" + anyDigest,
			[]string{"b.example/copy/repo", "a.example:5000/copy/deep/repo", "c.example/repo", "source"},
		},
		{"it ignores other sources", []runtime.Object{digestSet("x", "quay.example/ns", "a.example")}, "quay.example/other/repo" + anyDigest, []string{"source"}},
		{"it matches whole path elements", []runtime.Object{digestSet("x", "quay.example/ns", "a.example/b")}, "quay.example/ns2/repo" + anyDigest, []string{"source"}},
		{"it matches whole hosts", []runtime.Object{digestSet("x", "quay.example", "a.example/b")}, "quay.example.org/repo" + anyDigest, []string{"source"}},
		{"it treats a port as part of the host", []runtime.Object{digestSet("x", "quay.example", "a.example/b")}, "quay.example:5000/repo" + anyDigest, []string{"source"}},
		{"it matches the exact repository", []runtime.Object{digestSet("x", "quay.example/ns/repo", "a.example/b")}, "quay.example/ns/repo" + anyDigest, []string{"a.example/b", "source"}},
		{
			"it ignores a host as the mirror of a repository",
			[]runtime.Object{digestSet("x", "quay.example/ns/repo", "a.example")},
			"quay.example/ns/repo" + anyDigest,
			[]string{"source"},
		},
		{
			"it uses only the longest source",
			[]runtime.Object{digestSet("x", "quay.example", "a.example"), digestSet("y", "quay.example/ns", "b.example"), digestSet("z", "*.example", "c.example")},
			"quay.example/ns/repo" + anyDigest,
			[]string{"b.example/repo", "source"},
		},
		{
			"it uses the longest source even without mirrors",
			[]runtime.Object{digestSet("x", "quay.example", "a.example"), digestSet("y", "quay.example/ns")},
			"quay.example/ns/repo" + anyDigest,
			[]string{"source"},
		},
		{
			"it matches wildcard hosts and keeps the path",
			[]runtime.Object{digestSet("x", "*.example", "far.test"), digestSet("y", "*.eu.example", "near.test/copy")},
			"r1.quay.eu.example:5000/ns/repo" + anyDigest,
			[]string{"near.test/copy/ns/repo", "source"},
		},
		{"it does not apply a wildcard to the domain itself", []runtime.Object{digestSet("x", "*.quay.example", "a.test")}, "quay.example/repo" + anyDigest, []string{"source"}},
		{"it prefers a host to a wildcard", []runtime.Object{digestSet("x", "*.example", "a.test"), digestSet("y", "quay.example", "b.test")}, "quay.example/repo" + anyDigest, []string{"b.test/repo", "source"}},
		{"it ignores digest mirrors for tags", []runtime.Object{digestSet("x", "quay.example", "a.test"), contentPolicy("y", "quay.example", "b.test")}, "quay.example/repo:1", []string{"source"}},
		{"it ignores tag mirrors for digests", []runtime.Object{tagSet("x", "quay.example", "a.test")}, "quay.example/repo" + anyDigest, []string{"source"}},
		{"it treats a digest with a tag as a digest", []runtime.Object{tagSet("x", "quay.example", "a.test"), digestSet("x", "quay.example", "b.test")}, "quay.example/repo:1" + anyDigest, []string{"b.test/repo", "source"}},
		{"it uses tag mirrors for tags", []runtime.Object{tagSet("x", "quay.example", "a.test")}, "quay.example/repo:1", []string{"a.test/repo", "source"}},
		{
			"it merges lists for the same source and keeps their order",
			[]runtime.Object{digestSet("b", "quay.example", "c.test", "d.test", "e.test"), digestSet("a", "quay.example", "a.test", "b.test", "c.test")},
			"quay.example/repo" + anyDigest,
			[]string{"a.test/repo", "b.test/repo", "c.test/repo", "d.test/repo", "e.test/repo", "source"},
		},
		{
			"it orders a merged list by all lists",
			[]runtime.Object{digestSet("a", "quay.example", "c.test", "b.test"), digestSet("b", "quay.example", "a.test", "c.test")},
			"quay.example/repo" + anyDigest,
			[]string{"a.test/repo", "c.test/repo", "b.test/repo", "source"},
		},
		{
			"it prefers the first object's order if lists contradict each other",
			[]runtime.Object{digestSet("b", "quay.example", "b.test", "a.test"), digestSet("a", "quay.example", "a.test", "b.test")},
			"quay.example/repo" + anyDigest,
			[]string{"a.test/repo", "b.test/repo", "source"},
		},
		{
			"it merges image content source policies with digest mirror sets",
			[]runtime.Object{digestSet("b", "quay.example", "b.test"), contentPolicy("a", "quay.example", "a.test")},
			"quay.example/repo" + anyDigest,
			[]string{"a.test/repo", "b.test/repo", "source"},
		},
		{"it does not contact a forbidden source", []runtime.Object{never(digestSet("x", "quay.example", "a.test"))}, "quay.example/repo" + anyDigest, []string{"a.test/repo"}},
		{
			"it does not contact the source if one of several objects forbids it",
			[]runtime.Object{digestSet("a", "quay.example", "a.test"), never(digestSet("b", "quay.example", "b.test"))},
			"quay.example/repo" + anyDigest,
			[]string{"a.test/repo", "b.test/repo"},
		},
		{
			"it does not contact a forbidden source listed as a mirror",
			[]runtime.Object{never(digestSet("x", "quay.example", "quay.example", "a.test"))},
			"quay.example/repo" + anyDigest,
			[]string{"a.test/repo"},
		},
		{"it returns nothing if the only mirror is unusable and the source is forbidden", []runtime.Object{never(digestSet("x", "quay.example/repo", "a.test"))}, "quay.example/repo" + anyDigest, nil},
		{"it ignores the policy of a source without mirrors", []runtime.Object{never(digestSet("x", "quay.example"))}, "quay.example/repo" + anyDigest, []string{"source"}},
		{"it ignores the digest policy for tags", []runtime.Object{never(digestSet("x", "quay.example", "a.test"))}, "quay.example/repo:1", []string{"source"}},
		{"it keeps the source's place among the mirrors", []runtime.Object{digestSet("x", "quay.example", "a.test", "quay.example", "b.test")}, "quay.example/repo" + anyDigest, []string{"a.test/repo", "source", "b.test/repo"}},
		{"it accepts all names of Docker Hub", []runtime.Object{digestSet("x", "docker.io/library", "a.test/hub")}, "busybox" + anyDigest, []string{"a.test/hub/busybox", "source"}},
		{"it accepts a host without a dot", []runtime.Object{digestSet("x", "quay.example", "mirror/copy")}, "quay.example/repo" + anyDigest, []string{"mirror/copy/repo", "source"}},
		{"it ignores the case of hosts", []runtime.Object{digestSet("x", "Quay.Example", "A.test")}, "quay.example/repo" + anyDigest, []string{"a.test/repo", "source"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			access := registry.New(registry.Options{Mirrors: mirrors(t, tt.objects...)})
			ref, err := access.Reference(tt.pullspec)
			require.NoError(t, err)
			var got []string
			for _, candidate := range access.Candidates(ref) {
				assert.Equal(t, ref.Identifier(), candidate.Identifier())
				assert.IsType(t, ref, candidate)
				if candidate == ref {
					got = append(got, "source")
					continue
				}
				got = append(got, candidate.Context().Name())
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestInsecureMirrorsAreCandidatesIfListed(t *testing.T) {
	access := registry.New(registry.Options{
		Mirrors: mirrors(t, digestSet("x", "quay.example", "a.test", "b.test")), Insecure: []string{"b.test"},
	})
	ref, err := access.Reference("quay.example/repo" + anyDigest)
	require.NoError(t, err)
	var schemes []string
	for _, candidate := range access.Candidates(ref) {
		schemes = append(schemes, candidate.Context().Scheme())
	}
	assert.Equal(t, []string{"https", "http", "https"}, schemes, "mirrors are checked like sources")
}

func TestInvalidMirrorSetsAreRejected(t *testing.T) {
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprintf("m%d.test", i)
	}
	for _, tt := range []struct {
		name, want string
		object     runtime.Object
	}{
		{"a missing source", "ImageDigestMirrorSet x: an entry has no source", digestSet("x", "")},
		{"a source with a scheme", `source "https://quay.example" is not`, digestSet("x", "https://quay.example", "a.test")},
		{"a source with a tag", `source "quay.example/repo:1" is not`, digestSet("x", "quay.example/repo:1", "a.test")},
		{"a wildcard in the middle", `source "quay.*.example" is not`, digestSet("x", "quay.*.example", "a.test")},
		{"a wildcard with a path", `source "*.example/repo" is not *.<domain>`, digestSet("x", "*.example/repo", "a.test")},
		{"a wildcard as a mirror", `mirror "*.test" of quay.example is not`, digestSet("x", "quay.example", "*.test")},
		{"a mirror with a parent directory", `mirror "a.test/../b" of quay.example is not`, tagSet("x", "quay.example", "a.test/../b")},
		{"an empty mirror", `mirror "" of quay.example is not`, contentPolicy("x", "quay.example", "")},
		{"too many mirrors", "limit exceeded: source quay.example has 65 mirrors", digestSet("x", "quay.example", many...)},
		{"another type", "PartialObjectMetadata does not configure mirrors", &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := mirrorset.New(tt.object)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

const mirrorSets = `---
apiVersion: config.openshift.io/v1
kind: ImageDigestMirrorSet
metadata: {name: digests}
spec:
  imageDigestMirrors:
  - source: quay.example/ns
    mirrors: [a.test/ns]
    mirrorSourcePolicy: NeverContactSource
---
# nothing here
---
apiVersion: config.openshift.io/v1
kind: ImageTagMirrorSet
metadata: {name: tags}
spec:
  imageTagMirrors:
  - source: quay.example/ns
    mirrors: [b.test/ns]
---
apiVersion: v1
kind: List
items:
- apiVersion: operator.openshift.io/v1alpha1
  kind: ImageContentSourcePolicy
  metadata: {name: policy}
  spec:
    repositoryDigestMirrors:
    - source: quay.example/ns
      mirrors: [c.test/ns]
`

func TestMirrorSetsAreParsed(t *testing.T) {
	objects, err := mirrorset.Parse([]byte(mirrorSets))
	require.NoError(t, err)
	require.Len(t, objects, 3)
	access := registry.New(registry.Options{Mirrors: mirrors(t, objects...)})
	for pullspec, want := range map[string][]string{
		"quay.example/ns/repo" + anyDigest: {"c.test/ns/repo" + anyDigest, "a.test/ns/repo" + anyDigest},
		"quay.example/ns/repo:1":           {"b.test/ns/repo:1", "quay.example/ns/repo:1"},
	} {
		ref, err := name.ParseReference(pullspec)
		require.NoError(t, err)
		var got []string
		for _, candidate := range access.Candidates(ref) {
			got = append(got, candidate.String())
		}
		assert.ElementsMatch(t, want, got)
	}

	for _, tt := range []struct{ name, content, want string }{
		{"an empty file", "# empty\n", "found no ImageDigestMirrorSet, ImageTagMirrorSet or ImageContentSourcePolicy"},
		{"another kind", "{apiVersion: v1, kind: ConfigMap}", "document 1: v1 ConfigMap is not an ImageDigestMirrorSet"},
		{"a kind of another group", "{apiVersion: x/v1, kind: ImageTagMirrorSet}", "document 1: x/v1 ImageTagMirrorSet is not an"},
		{"an unknown field", strings.Replace(mirrorSets, "mirrorSourcePolicy", "sourcePolicy", 1), `ImageDigestMirrorSet: error unmarshaling JSON: while decoding JSON: json: unknown field "sourcePolicy"`},
		{"invalid YAML", "a: b: c", "document 1: "},
		{"nested lists", "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: List}]}", "item 1 is a list"},
		{"too much data", strings.Repeat("#", 5<<20), "limit exceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := mirrorset.Parse([]byte(tt.content))
			require.ErrorContains(t, err, tt.want)
		})
	}
}
