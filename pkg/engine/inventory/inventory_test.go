package inventory

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

func object(name string) manifest.ID {
	return manifest.ID{Group: "apps", Kind: "Deployment", Namespace: "x", Name: name}
}

func TestPlanMarksDroppedObjects(t *testing.T) {
	for _, tt := range []struct {
		name    string
		dropped string // the release that dropped it earlier
		named   bool
		skipped []string
		want    string
	}{
		{"it marks objects that the release dropped", "", false, []string{"b.yaml"}, "2.0.0"},
		{"it keeps objects of the release", "", true, nil, ""},
		{"it keeps the mark of an earlier release", "1.5.0", false, nil, "1.5.0"},
		{"it unmarks objects that the release contains again", "1.5.0", true, nil, ""},
		{"it keeps objects whose file was skipped", "", false, []string{"a.yaml"}, ""},
		{"it keeps the mark of an earlier release although the file was skipped", "1.5.0", false, []string{"a.yaml"}, "1.5.0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			record := Record{ID: object("a"), Version: "v1", Release: "1.0.0", Reached: true, Content: Content{1}, Dropped: tt.dropped, File: "a.yaml"}
			inv := Inventory{Release: "1.0.0", Digest: "sha256:1"}.With(record)
			before := maps.Clone(inv.Records)

			of := named(object("new"))
			if tt.named {
				of = named(object("new"), object("a"))
			}
			got := Plan(inv, of, tt.skipped, "2.0.0")
			want := record
			want.Dropped = tt.want
			assert.Equal(t, map[manifest.ID]Record{record.ID: want}, got.Records, "no record is added or removed")
			assert.Equal(t, before, inv.Records, "the argument does not change")
			assert.Equal(t, got, Plan(got, of, tt.skipped, "2.0.0"), "a second call changes nothing")
		})
	}
}

// named returns manifests of these objects.
func named(ids ...manifest.ID) map[manifest.ID]*manifest.Manifest {
	manifests := map[manifest.ID]*manifest.Manifest{}
	for _, id := range ids {
		manifests[id] = &manifest.Manifest{Object: &unstructured.Unstructured{Object: map[string]any{}}}
	}
	return manifests
}

func TestPlanMarksCreateOnlyObjects(t *testing.T) {
	inv := Inventory{Release: "1.0.0"}.With(Record{ID: object("a")}, Record{ID: object("b")})
	of := named(object("a"), object("b"))
	of[object("b")].Object.SetAnnotations(map[string]string{api.CreateOnlyAnnotation: "true"})
	once := Plan(inv, of, nil, "2.0.0")
	assert.False(t, once.Records[object("a")].CreateOnly)
	assert.True(t, once.Records[object("b")].CreateOnly)
	assert.True(t, Plan(once, named(object("b")), nil, "3.0.0").Records[object("b")].CreateOnly, "until the operator has applied the object again")
}

func TestPlanIgnoresStrayNamespaces(t *testing.T) {
	role := func(namespace string) manifest.ID {
		return manifest.ID{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Namespace: namespace, Name: "a"}
	}
	for _, tt := range []struct {
		name    string
		records []Record
	}{
		{"it renames the record", []Record{{ID: role("stray"), UID: "1"}}},
		{"it renames a dropped record", []Record{{ID: role("stray"), UID: "1", Dropped: "1.5.0"}}},
		{"it drops the record of an earlier namespace", []Record{{ID: role("earlier"), UID: "2", Dropped: "1.5.0"}, {ID: role("stray"), UID: "1"}}},
		{"it drops the record with the namespace", []Record{{ID: role("stray"), UID: "2", Dropped: "1.5.0"}, {ID: role(""), UID: "1"}}},
		{"it keeps the last apply", []Record{{ID: role("a"), UID: "2", Time: 1}, {ID: role("b"), UID: "1", Time: 3}, {ID: role("c"), UID: "3", Time: 2}}},
		{"it keeps the last apply of dropped records", []Record{
			{ID: role("a"), UID: "2", Time: 1, Dropped: "1.4.0"}, {ID: role("b"), UID: "1", Time: 3, Dropped: "1.5.0"}, {ID: role(""), UID: "3", Dropped: "1.5.0"},
		}},
		{"it keeps the record without the namespace", []Record{{ID: role("a"), UID: "2"}, {ID: role(""), UID: "1"}, {ID: role("z"), UID: "3"}}},
		{"it drops the record without the namespace", []Record{{ID: role("stray"), UID: "1"}, {ID: role(""), UID: "2", Dropped: "1.5.0"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inv := Inventory{Release: "1.0.0"}.With(tt.records...)
			before := maps.Clone(inv.Records)
			for range 20 { // in random order
				got := Plan(inv, named(role("")), nil, "2.0.0").Records[role("")]
				got.Time = 0
				assert.Equal(t, Record{ID: role(""), UID: "1"}, got)
			}
			assert.Len(t, Plan(inv, named(role("")), nil, "2.0.0").Records, 1)
			assert.Equal(t, before, inv.Records, "the argument does not change")
		})
	}
	moved := Plan(Inventory{}.With(Record{ID: object("a")}), named(manifest.ID{Group: "apps", Kind: "Deployment", Namespace: "y", Name: "a"}), nil, "2.0.0")
	require.Len(t, moved.Orphans(), 1)
	assert.Equal(t, object("a"), moved.Orphans()[0].ID, "an object in another namespace is another object")
}

func TestPlanDescribesTheRelease(t *testing.T) {
	inv := Inventory{
		Release: "1.0.0", Digest: "sha256:1", Namespaces: []string{"old"}, Kinds: []schema.GroupKind{{Kind: "Old"}},
	}
	objects := named(object("a"), manifest.ID{Kind: "Node", Name: "a"})
	got := Plan(inv, objects, nil, "2.0.0")
	assert.Equal(t, "2.0.0", got.Release)
	assert.Empty(t, got.Digest, "the digest belonged to another release")
	assert.Equal(t, []schema.GroupKind{{Group: "apps", Kind: "Deployment"}, {Kind: "Node"}}, got.Kinds)
	assert.Equal(t, []string{"x"}, got.Namespaces)
	assert.Equal(t, "sha256:1", Plan(inv, objects, nil, "1.0.0").Digest)
	assert.Empty(t, Plan(Inventory{}, nil, nil, "1.0.0").Records)
}

func TestWithAndForgetDoNotChangeTheOriginal(t *testing.T) {
	empty := Inventory{Release: "1.0.0"}
	one := empty.With(Record{ID: object("a"), Release: "1.0.0"})
	two := one.With(Record{ID: object("a"), Release: "2.0.0"}, Record{ID: object("b")})
	gone := two.Forget(object("a"), object("never"))
	assert.Empty(t, empty.Records)
	assert.Equal(t, map[manifest.ID]Record{object("a"): {ID: object("a"), Release: "1.0.0"}}, one.Records)
	assert.Len(t, two.Records, 2)
	assert.Equal(t, "2.0.0", two.Records[object("a")].Release)
	assert.Equal(t, map[manifest.ID]Record{object("b"): {ID: object("b")}}, gone.Records)
	assert.Equal(t, "1.0.0", gone.Release)
	assert.Empty(t, empty.Forget(object("a")).Records)
}

func TestOrphansAreSorted(t *testing.T) {
	inv := Inventory{}.With(
		Record{ID: manifest.ID{Kind: "Service", Namespace: "b", Name: "a"}, Dropped: "1"},
		Record{ID: manifest.ID{Kind: "Service", Namespace: "a", Name: "b"}, Dropped: "2"},
		Record{ID: manifest.ID{Kind: "Service", Namespace: "a", Name: "a"}, Dropped: "1"},
		Record{ID: manifest.ID{Group: "apps", Kind: "Deployment", Namespace: "a", Name: "a"}, Dropped: "1"},
		Record{ID: manifest.ID{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "widgets.example.com"}, Dropped: "1"},
		Record{ID: manifest.ID{Group: "example.com", Kind: "Widget", Namespace: "a", Name: "a"}, Dropped: "1"},
		Record{ID: manifest.ID{Kind: "ConfigMap", Namespace: "z", Name: "a"}, Dropped: "1"},
		Record{ID: manifest.ID{Kind: "ConfigMap", Namespace: "a", Name: "a"}},
	)
	var got []string
	for _, r := range inv.Orphans() {
		got = append(got, r.ID.String())
	}
	assert.Equal(t, []string{
		"ConfigMap z/a", "Service a/a", "Service a/b", "Service b/a", "Deployment.apps a/a", "Widget.example.com a/a",
		"CustomResourceDefinition.apiextensions.k8s.io widgets.example.com",
	}, got, "definitions come last")
	assert.Empty(t, Inventory{}.Orphans())
}

// TestOrphansExcludeObjectsOfTheRelease covers an object that the API server serves in two groups.
func TestOrphansExcludeObjectsOfTheRelease(t *testing.T) {
	ingress := func(group, name string) manifest.ID {
		return manifest.ID{Group: group, Kind: "Ingress", Namespace: "x", Name: name}
	}
	inv := Inventory{}.With(
		Record{ID: ingress("extensions", "moved"), UID: "1", Dropped: "2.0.0"}, Record{ID: ingress("networking.k8s.io", "moved"), UID: "1"},
		Record{ID: ingress("extensions", "replaced"), UID: "2", Dropped: "2.0.0"}, Record{ID: ingress("networking.k8s.io", "replaced"), UID: "3"},
		Record{ID: ingress("extensions", "unknown"), Dropped: "2.0.0"}, Record{ID: ingress("networking.k8s.io", "unknown")},
		Record{ID: ingress("extensions", "twice"), UID: "4", Dropped: "2.0.0"}, Record{ID: ingress("networking.k8s.io", "twice"), UID: "4", Dropped: "2.0.0"},
	)
	var got []string
	for _, r := range inv.Orphans() {
		got = append(got, r.ID.String())
	}
	assert.Equal(t, []string{
		"Ingress.extensions x/replaced", "Ingress.extensions x/twice", "Ingress.extensions x/unknown", "Ingress.networking.k8s.io x/twice",
	}, got)
}

func TestContentIsWrittenAsHex(t *testing.T) {
	var sum [32]byte
	for i := range sum {
		sum[i] = byte(i)
	}
	c := ContentOf(sum)
	assert.Equal(t, "000102030405060708090a0b0c0d0e0f", c.String())
	data, err := json.Marshal([]Content{c, {}})
	require.NoError(t, err)
	assert.JSONEq(t, `["000102030405060708090a0b0c0d0e0f", ""]`, string(data))
	var back []Content
	require.NoError(t, json.Unmarshal(data, &back))
	assert.Equal(t, []Content{c, {}}, back)

	for _, bad := range []string{"00", strings.Repeat("0", 33), strings.Repeat("x", 32)} {
		require.ErrorContains(t, c.UnmarshalText([]byte(bad)), `content "`+bad+`": `)
	}
}

// The expected values come from `printf %s NAME.NAMESPACE.ConfigMap. | openssl dgst -sha256 -binary | basenc --base64url`, without padding
// like in kubectl. KEP-3659 defines this rule.
func TestApplySetIDFollowsTheStandard(t *testing.T) {
	assert.Equal(t, "applyset-pHY8NmnIJa2DYilVv34wanP8udsW_1HUd7xEbJybVXo-v1", ApplySetID("openshift-cluster-version", "version"))
	assert.Equal(t, "applyset-ud2s-omImR5PdCbaniQusUxWXuodGY21Rr3zCc43ygM-v1", ApplySetID("ns", "test"))
	for _, id := range []string{ApplySetID("a", "b"), ApplySetID(strings.Repeat("a", 63), strings.Repeat("b", 63))} {
		assert.Empty(t, validation.IsValidLabelValue(id))
		assert.Regexp(t, `^applyset-[A-Za-z0-9_-]{43}-v1$`, id)
	}
}

//threat:object-content-pruned
func TestProtectedReturnsTheReason(t *testing.T) {
	for _, tt := range []struct {
		group, kind string
		want        string
	}{
		{"", "PersistentVolume", "holds data"},
		{"", "PersistentVolumeClaim", "holds data"},
		{"cdi.kubevirt.io", "DataVolume", "holds data"},
		{"", "Namespace", "its content would be deleted with it"},
		{"apiextensions.k8s.io", "CustomResourceDefinition", "kept while objects of its kind exist"},
		{"config.openshift.io", "ClusterVersion", "owns all objects of the release"},
		{"", "ConfigMap", ""},
		{"example.com", "Namespace", ""},
		{"", "DataVolume", ""},
		{"apps", "StatefulSet", ""},
	} {
		t.Run(tt.kind+"."+tt.group, func(t *testing.T) {
			reason, ok := Protected(manifest.ID{Group: tt.group, Kind: tt.kind, Namespace: "x", Name: "y"})
			assert.Equal(t, tt.want, reason)
			assert.Equal(t, tt.want != "", ok)
		})
	}
}
