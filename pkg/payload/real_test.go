package payload_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/test/fixture"
)

// realOptions returns the options with which the original counts 983 and 1005 manifests: default profile and feature set, no feature gates,
// all capabilities.
func realOptions() payload.Options {
	return payload.Options{Filter: inclusion.Filter{Capabilities: inclusion.AllCapabilities(nil)}, TemplateErrors: true}
}

func loadReal(t testing.TB, version string, opts payload.Options) *payload.Payload {
	t.Helper()
	dir := filepath.Join(fixture.Testdata(t), "payloads", version)
	p, err := payload.Load(os.DirFS(dir), "registry.example/release:"+version, opts)
	require.NoError(t, err)
	return p
}

// defaults loads the payloads with realOptions once for all tests that do not modify them.
var defaults = map[string]func() (*payload.Payload, error){
	"4.22.9": sync.OnceValues(func() (*payload.Payload, error) { return loadDefault("4.22.9") }),
	"4.23.0": sync.OnceValues(func() (*payload.Payload, error) { return loadDefault("4.23.0") }),
}

func loadDefault(version string) (*payload.Payload, error) {
	dir := filepath.Join(os.Getenv(fixture.TestdataEnv), "payloads", version)
	return payload.Load(os.DirFS(dir), "registry.example/release:"+version, realOptions())
}

func realPayload(t testing.TB, version string) *payload.Payload {
	t.Helper()
	fixture.Testdata(t)
	p, err := defaults[version]()
	require.NoError(t, err)
	return p
}

// find returns the included manifest with an identity in the form of ID.String, or nil if there is none.
func find(p *payload.Payload, id string) *manifest.Manifest {
	for _, m := range p.Manifests {
		if m.ID().String() == id {
			return m
		}
	}
	return nil
}

// excluded returns the reasons why manifests of a file are excluded.
func excluded(p *payload.Payload, file string) []string {
	var reasons []string
	for _, e := range p.Excluded {
		if e.Manifest.File == file {
			reasons = append(reasons, e.Reason)
		}
	}
	return reasons
}

// TestRealReleaseHasTheSameCountsAsTheOriginal compares the number of manifests with the original's: 983 and 1005. The original counts the
// ImageStream openshift/driver-toolkit of 4.23.0 once for each of its two files. Merged, it counts once, hence 1004.
func TestRealReleaseHasTheSameCountsAsTheOriginal(t *testing.T) {
	for _, tt := range []struct {
		version                              string
		original, included, merged, excluded int
		images                               int
	}{
		{"4.22.9", 983, 983, 0, 215, 192},
		{"4.23.0", 1005, 1004, 1, 294, 196},
	} {
		t.Run(tt.version, func(t *testing.T) {
			p := realPayload(t, tt.version)
			assert.Len(t, p.Manifests, tt.included)
			assert.Equal(t, tt.original, len(p.Manifests)+tt.merged)
			assert.Len(t, p.Warnings, tt.merged)
			assert.Len(t, p.Excluded, tt.excluded)
			assert.Len(t, p.References, tt.images)
			assert.Equal(t, tt.version, p.Release.Version)
			assert.Equal(t, "https://access.redhat.com/errata/RHSA-2026:0000", p.Release.URL)
			assert.Equal(t, "registry.example/release:"+tt.version, p.Release.Image)
			assert.False(t, p.Created.IsZero())
			assert.Equal(t, time.UTC, p.Created.Location())
		})
	}
}

func TestRealReleaseLoadsIdenticallyTwice(t *testing.T) {
	first, second := realPayload(t, "4.23.0"), loadReal(t, "4.23.0", realOptions())
	require.True(t, reflect.DeepEqual(first, second))
}

// TestRealReleaseHashDependsOnSettings checks which settings change the hash: profile, feature set and gates do, capabilities do not.
// TestRealReleaseHashMatchesTheOriginal checks its value.
func TestRealReleaseHashDependsOnSettings(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	all := realPayload(t, "4.23.0")
	opts := realOptions()
	opts.Filter.Capabilities.Enabled = nil
	none := loadReal(t, "4.23.0", opts)
	assert.Less(t, len(none.Manifests), len(all.Manifests))
	assert.Equal(t, all.Hash, none.Hash)
	assert.Equal(t, all.Hash, loadReal(t, "4.23.0", payload.Options{}).Hash)
	opts = realOptions()
	opts.Filter.Gates = sets.New("ClusterAPIMachineManagement")
	assert.NotEqual(t, all.Hash, loadReal(t, "4.23.0", opts).Hash)
	assert.NotEqual(t, all.Hash, realPayload(t, "4.22.9").Hash)
}

func TestRealReleaseIsOrderedByFile(t *testing.T) {
	p := realPayload(t, "4.23.0")
	assert.True(t, strings.HasPrefix(p.Manifests[0].File, "0000_00_cluster-version-operator"))
	folders, last := 1, ""
	for _, m := range p.Manifests {
		if m.File < last {
			folders++
		}
		last = m.File
	}
	assert.Equal(t, 2, folders, "the operator's folder comes first; each folder is in byte order")
}

// The following tests check peculiarities that were found in real releases.

//threat:duplicate-keys
func TestRealReleaseWithRepeatedKeysLoads(t *testing.T) {
	p := realPayload(t, "4.23.0")
	m := find(p, "ConfigMap openshift-config-managed/release-verification")
	require.NotNil(t, m)
	assert.Equal(t, "0000_90_cluster-update-keys_configmap.yaml", m.File)
	assert.Contains(t, m.Object.Object["data"], "verifier-public-key-redhat")
	sa := find(p, "ServiceAccount openshift-cluster-storage-operator/csi-snapshot-controller-operator")
	require.NotNil(t, sa)
	assert.Equal(t, "CSISnapshot", string(inclusion.CapabilitiesOf(sa)[0]))
}

func TestRealReleaseWithByteOrderMarksLoads(t *testing.T) {
	p, marked := realPayload(t, "4.23.0"), 0
	dir := filepath.Join(fixture.Testdata(t), "payloads", "4.23.0", payload.ReleaseDir)
	for _, m := range p.Manifests {
		data, err := os.ReadFile(filepath.Join(dir, m.File))
		if err == nil && strings.HasPrefix(string(data), "\ufeff") {
			marked++
			assert.Equal(t, "ConsoleQuickStart", m.GVK().Kind)
		}
	}
	assert.Equal(t, 6, marked)
}

func TestRealReleaseHasOneFeatureGate(t *testing.T) {
	p := realPayload(t, "4.23.0")
	m := find(p, "FeatureGate.config.openshift.io cluster")
	require.NotNil(t, m)
	assert.Equal(t, "0000_05_config-operator_02_featuregate.cr.yaml", m.File)
	// Eight more files contain the same object as JSON in .yaml files, for the config operator only.
	others := map[string]int{}
	for _, e := range p.Excluded {
		if e.Manifest.Is("config.openshift.io", "FeatureGate") {
			others[e.Reason]++
		}
	}
	assert.Equal(t, map[string]int{
		`annotation include.release.openshift.io/self-managed-high-availability is "false-except-for-the-config-operator", not true`: 1,
		"no annotation include.release.openshift.io/self-managed-high-availability":                                                  1,
		"feature set Default is not in OKD":                  2,
		"feature set Default is not in DevPreviewNoUpgrade":  2,
		"feature set Default is not in TechPreviewNoUpgrade": 2,
	}, others)
}

func TestRealReleaseKeepsAllDocumentsOfAFile(t *testing.T) {
	documents := map[int]bool{}
	p := realPayload(t, "4.23.0")
	for _, m := range p.Manifests {
		if m.File == "0000_50_insights-operator_03-clusterrole.yaml" {
			documents[m.Document] = true
		}
	}
	for range excluded(p, "0000_50_insights-operator_03-clusterrole.yaml") {
		documents[-len(documents)] = true
	}
	assert.Len(t, documents, 21)
}

func TestRealReleaseSkipsOtherFiles(t *testing.T) {
	p := realPayload(t, "4.23.0")
	for _, m := range p.Manifests {
		assert.Contains(t, []string{".yaml", ".yml", ".json"}, filepath.Ext(m.File))
	}
}

func TestRealReleaseTemplatesAreRendered(t *testing.T) {
	p := realPayload(t, "4.23.0")
	textOf := func(id string) string {
		m := find(p, id)
		require.NotNil(t, m, id)
		return text(t, m)
	}
	assert.Contains(t, textOf("Deployment.apps openshift-cluster-version/cluster-version-operator"), `"--release-image=registry.example/release:4.23.0"`)
	assert.Contains(t, textOf("PrometheusRule.monitoring.coreos.com openshift-cluster-version/cluster-version-operator"), "{{ $labels.")
	literal := 0
	for _, m := range p.Manifests {
		if m.Component != "cluster-version-operator" && strings.Contains(text(t, m), "{{") {
			literal++
		}
		assert.NotContains(t, text(t, m), "{{.ReleaseImage}}")
	}
	assert.Greater(t, literal, 20, "braces in other files stay unchanged")
}

func TestRealReleaseScalarsKeepTheirTypes(t *testing.T) {
	p := realPayload(t, "4.23.0")
	crd := find(p, "CustomResourceDefinition.apiextensions.k8s.io alertmanagerconfigs.monitoring.coreos.com")
	require.NotNil(t, crd)
	assert.Equal(t, 6, strings.Count(text(t, crd), `"="`), "a plain = is a string")
	assert.Greater(t, len(text(t, crd)), 700_000, "the largest object of a release")
	opts := realOptions()
	opts.Filter.Gates = sets.New("ClusterAPIMachineManagement")
	opts.Filter.Capabilities = inclusion.AllCapabilities(opts.Filter.Gates)
	crd = find(loadReal(t, "4.23.0", opts), "CustomResourceDefinition.apiextensions.k8s.io clusterapis.operator.openshift.io")
	require.NotNil(t, crd)
	assert.Contains(t, text(t, crd), "9007199254740991")
}

func TestRealReleaseExclusionsHaveReasons(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	p := realPayload(t, "4.23.0")
	reasons := map[string]int{}
	for _, e := range p.Excluded {
		reasons[e.Reason]++
		assert.Nil(t, e.Manifest.Raw)
		assert.NotContains(t, e.Manifest.Object.Object, "spec")
	}
	assert.Positive(t, reasons["no annotation include.release.openshift.io/self-managed-high-availability"])
	assert.Positive(t, reasons["feature gate ClusterAPIMachineManagement is not enabled"])
	assert.Positive(t, reasons["feature set Default is not in OKD"])
	assert.Equal(t, []string{"no annotations"}, excluded(p, "0000_50_tests_test-reporting.yaml"))
	opts := realOptions()
	opts.Filter.ExcludeID = "internal-openshift-hosted"
	assert.Len(t, loadReal(t, "4.23.0", opts).Manifests, 906)
	opts = realOptions()
	opts.Filter.Profile = "hypershift"
	assert.NotNil(t, find(loadReal(t, "4.23.0", opts), "Deployment.apps openshift-machine-api/cluster-baremetal-operator-hostedcluster"))
}

// TestRealReleaseObjectsAreUniqueUnderAllSettings loads the releases for other clusters. With the race detector, which would take minutes,
// it loads only the first.
func TestRealReleaseObjectsAreUniqueUnderAllSettings(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for i, tt := range []struct{ version, profile, set string }{
		{"4.22.9", "single-node-developer", "TechPreviewNoUpgrade"},
		{"4.22.9", "hypershift", "Default"},
		{"4.23.0", "self-managed-high-availability", "TechPreviewNoUpgrade"},
		{"4.23.0", "self-managed-high-availability", "DevPreviewNoUpgrade"},
		{"4.23.0", "self-managed-high-availability", "CustomNoUpgrade"},
		{"4.23.0", "self-managed-high-availability", "OKD"},
		{"4.23.0", "single-node-developer", "Default"},
		{"4.23.0", "ibm-cloud-managed", "Default"},
		{"4.23.0", "hypershift", "TechPreviewNoUpgrade"},
	} {
		t.Run(tt.version+"/"+tt.profile+"/"+tt.set, func(t *testing.T) {
			if fixture.RaceDetector && i > 0 {
				t.Skip("`make test` loads it without the race detector")
			}
			p := loadReal(t, tt.version, payload.Options{Filter: inclusion.Filter{Profile: tt.profile, FeatureSet: tt.set}})
			assert.NotEmpty(t, p.Manifests)
		})
	}
}

func TestRealReleaseHasTombstonesAndCreateOnlyManifests(t *testing.T) {
	p := loadReal(t, "4.23.0", payload.Options{Filter: inclusion.Filter{Gates: sets.New("ClusterAPIMachineManagement")}})
	tombstones, createOnly := 0, 0
	for _, m := range p.Manifests {
		if m.Tombstone() {
			tombstones++
		}
		if m.CreateOnly() {
			createOnly++
		}
	}
	assert.Equal(t, 27, tombstones)
	assert.GreaterOrEqual(t, createOnly, 40)
	m := find(p, "Deployment.apps openshift-machine-api/cluster-baremetal-operator-hostedcluster")
	require.NotNil(t, m)
	assert.True(t, m.Tombstone())
	assert.NotNil(t, find(p, "CronJob.batch openshift-operator-lifecycle-manager/collect-profiles"), "a manifest with metadata only is kept")
}

func TestRealReleaseKeepsStatus(t *testing.T) {
	p := realPayload(t, "4.23.0")
	operators := 0
	for _, m := range p.Manifests {
		if !m.Is("config.openshift.io", "ClusterOperator") {
			continue
		}
		operators++
		versions, _, err := unstructured.NestedSlice(m.Object.Object, "status", "versions")
		require.NoError(t, err)
		names := sets.New[string]()
		for _, v := range versions {
			names.Insert(v.(map[string]any)["name"].(string))
		}
		assert.True(t, names.Has("operator"), m.String())
	}
	assert.GreaterOrEqual(t, operators, 30)
}

func TestRealReleaseMergesImageStreams(t *testing.T) {
	p := realPayload(t, "4.23.0")
	m := find(p, "ImageStream.image.openshift.io openshift/driver-toolkit")
	require.NotNil(t, m)
	tags, _, err := unstructured.NestedSlice(m.Object.Object, "spec", "tags")
	require.NoError(t, err)
	assert.GreaterOrEqual(t, len(tags), 3)
	require.Len(t, p.Warnings, 1)
	assert.Contains(t, p.Warnings[0], "0000_50_driver-toolkit_01-openshift-imagestream.yaml")
	assert.Contains(t, p.Warnings[0], "0000_50_driver-toolkit-10_01-openshift-imagestream.yaml")
}

func TestRealReleaseHasNoStrayNamespaces(t *testing.T) {
	p := realPayload(t, "4.22.9")
	assert.NotNil(t, find(p, "ClusterRoleBinding.rbac.authorization.k8s.io cluster-baremetal-operator"), "built-in kind")
	assert.NotNil(t, find(p, "SecurityContextConstraints.security.openshift.io insights-runtime-extractor-scc"), "kind with a CRD")
}

// TestRealReleasesShareMemory limits the memory of an update: the next release needs little memory besides the running one.
func TestRealReleasesShareMemory(t *testing.T) {
	running := realPayload(t, "4.22.9")
	opts := realOptions()
	opts.Running = running
	next := loadReal(t, "4.23.0", opts)
	assert.Equal(t, realPayload(t, "4.23.0").Hash, next.Hash)
	held, maps := map[uintptr]bool{}, 0
	var count func(value any, seen func(at uintptr))
	count = func(value any, seen func(at uintptr)) {
		switch v := value.(type) {
		case map[string]any:
			seen(reflect.ValueOf(v).Pointer())
			for _, item := range v {
				count(item, seen)
			}
		case []any:
			for _, item := range v {
				count(item, seen)
			}
		}
	}
	for _, m := range running.Manifests {
		count(m.Object.Object, func(at uintptr) { held[at] = true; maps++ })
	}
	assert.Less(t, len(held), maps/2, "equal maps within a release are shared")
	added := map[uintptr]bool{}
	for _, m := range next.Manifests {
		count(m.Object.Object, func(at uintptr) {
			if !held[at] {
				added[at] = true
			}
		})
	}
	assert.Less(t, len(added), len(held)/3, "equal maps in the next release are shared")
}

func BenchmarkLoad(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		loadReal(b, "4.23.0", realOptions())
	}
}

func BenchmarkLoadBesideRunning(b *testing.B) {
	opts := realOptions()
	opts.Running = realPayload(b, "4.22.9")
	b.ReportAllocs()
	for b.Loop() {
		loadReal(b, "4.23.0", opts)
	}
}

// TestAppliedObjectsAreNoOrphans updates between two releases that differ in the namespaces of cluster-scoped objects, which an API server
// ignores. Earlier versions of the operator recorded such namespaces.
func TestAppliedObjectsAreNoOrphans(t *testing.T) {
	for _, tt := range []struct{ from, to, recorded string }{
		{"4.22.9", "4.23.0", ""}, {"4.22.9", "4.23.0", "stray"}, {"4.23.0", "4.22.9", ""}, {"4.23.0", "4.22.9", "stray"},
	} {
		t.Run("from "+tt.from+" "+tt.recorded, func(t *testing.T) {
			inv := inventory.Inventory{}
			for _, m := range realPayload(t, tt.from).Manifests {
				id := m.ID()
				if id.Namespace == "" {
					id.Namespace = tt.recorded
				}
				inv = inv.With(inventory.Record{ID: id, Version: m.GVK().Version, Release: tt.from, File: m.File})
			}
			next := realPayload(t, tt.to)
			bare := func(id manifest.ID) manifest.ID { return manifest.ID{Group: id.Group, Kind: id.Kind, Name: id.Name} }
			applied, anywhere := map[manifest.ID]bool{}, map[manifest.ID]bool{}
			for _, m := range next.Manifests {
				applied[m.ID()], anywhere[bare(m.ID())] = true, true
			}
			named, skipped := next.Named()
			orphans := inventory.Plan(inv, named, skipped, tt.to).Orphans()
			assert.NotEmpty(t, orphans)
			for _, o := range orphans {
				isApplied := applied[o.ID] || applied[bare(o.ID)] || o.ID.Namespace == "" && anywhere[o.ID]
				assert.False(t, isApplied, "release %s applies %s", tt.to, o.ID)
			}
		})
	}
}
