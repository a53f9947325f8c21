package lint_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/author/lint"
	"github.com/cluster-version/cvo/pkg/author/lint/finding"
	"github.com/cluster-version/cvo/pkg/author/lint/source"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/golden"
)

const (
	include  = `include.release.openshift.io/self-managed-high-availability: "true"`
	digestA  = "registry.example/platform@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	digestB  = "registry.example/platform@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	metadata = "release-manifests/release-metadata"
	images   = "release-manifests/image-references"
	web      = "release-manifests/0000_50_web_10.yaml"
)

// sound returns the files of a release without mistakes.
func sound(t testing.TB) map[string]string {
	t.Helper()
	signer, err := fixture.NewSigner("lint", fixture.SignerOptions{})
	require.NoError(t, err)
	key, err := signer.PublicKey()
	require.NoError(t, err)
	return map[string]string{
		metadata: `{"kind":"cincinnati-metadata-v0","version":"1.1.0","previous":["1.0.0"],"next":["1.2.0"],"metadata":{"url":"https://example.com/1.1.0"}}`,
		images: `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.1.0"},"spec":{"tags":[
{"name":"web","annotations":{"io.openshift.build.versions":"kubernetes=1.36.0"},"from":{"kind":"DockerImage","name":"` + digestA + `"}}]}}`,
		"manifests/0000_00_operator_00.yaml": object("v1", "Namespace", "operator", "", ""),
		"release-manifests/0000_50_web_00.yaml": object("v1", "Namespace", "web", "", "") + "---\n" +
			object("apps/v1", "Deployment", "web", "web", "spec:\n"+workload("app: web", digestA)),
		"release-manifests/0000_90_keys_00.yaml": strings.Replace(object("v1", "ConfigMap", "keys", "web", "data:\n  store-a: https://example.com/signatures\n  verifier-public-key-a: |\n"+indent(string(key))),
			"annotations:", "annotations:\n    release.openshift.io/verification-config-map: \"\"", 1),
	}
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n"
}

func object(apiVersion, kind, name, namespace, rest string, annotations ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\nmetadata:\n  name: %s\n", apiVersion, kind, name)
	if namespace != "" {
		fmt.Fprintf(&b, "  namespace: %s\n", namespace)
	}
	fmt.Fprintf(&b, "  annotations:\n")
	if len(annotations) == 0 {
		annotations = []string{include}
	}
	for _, a := range annotations {
		fmt.Fprintf(&b, "    %s\n", a)
	}
	return b.String() + rest
}

func workload(labels, image string) string {
	return `  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {` + labels + `}}
    spec:
      containers:
      - name: web
        image: ` + image + "\n"
}

func crd(kind string, annotations ...string) string {
	plural := strings.ToLower(kind) + "s"
	return object("apiextensions.k8s.io/v1", "CustomResourceDefinition", plural+".example.com", "", `spec:
  group: example.com
  names: {kind: `+kind+`, plural: `+plural+`}
  scope: Cluster
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v1beta1, served: false, storage: false, schema: {openAPIV3Schema: {type: object}}}
`, annotations...)
}

// check lints the sound release with some files added or replaced ("" removes a file). It returns the findings in the format `severity
// rule file:line`.
func check(t testing.TB, files map[string]string, opts lint.Options) ([]string, *finding.Report) {
	t.Helper()
	all := sound(t)
	maps.Copy(all, files)
	var list []source.File
	for name, text := range all {
		if text != "" {
			list = append(list, source.File{Name: name, Data: []byte(text)})
		}
	}
	report := lint.Check(list, opts)
	var found []string
	for _, f := range report.Findings {
		found = append(found, fmt.Sprintf("%s %s %s:%d", f.Severity, f.Rule, f.File, f.Line))
		_, known := finding.RuleByID(f.Rule)
		assert.True(t, known, f.Rule)
		assert.NotEmpty(t, f.Message)
		assert.NotEmpty(t, f.Remedy)
	}
	return found, report
}

func TestSoundReleaseHasNoFindings(t *testing.T) {
	found, report := check(t, nil, lint.Options{})
	assert.Empty(t, found)
	assert.Equal(t, 4, report.Objects)
	assert.Equal(t, 5, report.Files)
}

// rule is a release with a mistake and the expected findings.
type rule struct {
	name  string
	files map[string]string
	want  []string
	// says is a substring of the first finding's message.
	says string
}

func rules() []rule {
	return slices.Concat(fileRules(), annotationRules(), kindRules(), objectRules(), releaseRules())
}

func TestRulesFindTheirMistakes(t *testing.T) {
	for _, tt := range rules() {
		t.Run(tt.name, func(t *testing.T) {
			found, report := check(t, tt.files, lint.Options{})

			assert.Equal(t, tt.want, found, "%v", report.Findings)
			if len(report.Findings) > 0 {
				assert.Contains(t, report.Findings[0].Message, tt.says)
			}
		})
	}
}

func tombstone(apiVersion, kind, name string) string {
	return object(apiVersion, kind, name, "", "", include, `release.openshift.io/delete: "true"`)
}

// fromRules returns mistakes relative to an earlier release that defines the kind Thing.
func fromRules() []rule {
	stored := strings.Replace(strings.Replace(crd("Thing"), "storage: true", "storage: false", 1), "served: false, storage: false", "served: true, storage: true", 1)
	withoutBeta := strings.Replace(crd("Thing"), "  - {name: v1beta1, served: false, storage: false, schema: {openAPIV3Schema: {type: object}}}\n", "", 1)
	crdTombstone := tombstone("apiextensions.k8s.io/v1", "CustomResourceDefinition", "things.example.com")
	preview := crd("Thing", include, "release.openshift.io/feature-set: TechPreviewNoUpgrade")
	return []rule{
		{name: "it accepts the same CRD", files: map[string]string{web: crd("Thing")}},
		{
			name: "it finds dropped kinds", says: "release 1.0.0 has the CRD things.example.com, but this release neither contains nor deletes it",
			want: []string{"warning kind-dropped release-manifests:0"},
		},
		{
			name: "it reports retired kinds", says: "deletes the CRD things.example.com of release 1.0.0",
			files: map[string]string{web: crdTombstone + "---\n" + tombstone("example.com/v1", "Thing", "x")},
			want:  []string{"info kind-dropped " + web + ":1"},
		},
		{
			name: "it finds the deletion of a kind that the earlier release lacks", says: "no CRD",
			files: map[string]string{web: crd("Thing") + "---\n" + tombstone("example.com/v1", "Think", "x")},
			want:  []string{"info tombstone-kind " + web + ":16"},
		},
		{
			name: "it finds a changed storage version", says: "stores v1beta1, but release 1.0.0 stores v1: objects stay in version v1",
			files: map[string]string{web: stored}, want: []string{"warning storage-version-change " + web + ":11"},
		},
		{
			name: "it finds a storage version that the earlier release lacks", says: "once v2 is stored, clusters cannot go back to release 1.0.0, which lacks it",
			files: map[string]string{web: strings.Replace(crd("Thing"), "{name: v1, served: true, storage: true,",
				"{name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}\n  - {name: v1, served: true, storage: false,", 1)},
			want: []string{"warning storage-version-change " + web + ":11"},
		},
		{
			name: "it finds a dropped storage version", says: "lacks v1, which release 1.0.0 stores: the API server rejects the CRD while its status.storedVersions lists v1",
			files: map[string]string{web: strings.ReplaceAll(crd("Thing"), "{name: v1,", "{name: v2,")},
			want:  []string{"error storage-version-change " + web + ":11"},
		},
		{
			name: "it finds a dropped version that clusters may store", says: "lacks v1beta1, which release 1.0.0 lists: the API server rejects the CRD where status.storedVersions still lists it",
			files: map[string]string{web: withoutBeta},
			want:  []string{"warning version-dropped " + web + ":11"},
		},
		{
			name: "it reports a dropped storage version only once", says: "lacks v1, which release 1.0.0 stores",
			files: map[string]string{web: strings.ReplaceAll(withoutBeta, "{name: v1,", "{name: v1beta1,")},
			want:  []string{"error storage-version-change " + web + ":11"},
		},
		{name: "it accepts a dropped version for other clusters", files: map[string]string{
			web:                                     strings.Replace(withoutBeta, include, include+"\n    release.openshift.io/feature-set: Default", 1),
			"release-manifests/0000_50_web_20.yaml": preview,
		}},
		{name: "it accepts a changed storage version for other clusters", files: map[string]string{
			web:                                     strings.Replace(stored, include, include+"\n    release.openshift.io/feature-set: Default", 1),
			"release-manifests/0000_50_web_20.yaml": preview,
		}},
	}
}

func TestRulesCompareWithThePreviousRelease(t *testing.T) {
	for _, tt := range fromRules() {
		t.Run(tt.name, func(t *testing.T) {
			before := crd("Thing")
			if strings.Contains(tt.name, "other clusters") {
				before = crd("Thing", include, "release.openshift.io/feature-set: TechPreviewNoUpgrade")
			}
			found, report := check(t, tt.files, lint.Options{From: []source.File{
				{Name: metadata, Data: []byte(`{"kind":"cincinnati-metadata-v0","version":"1.0.0"}`)},
				{Name: web, Data: []byte(before)},
				{Name: "release-manifests/0000_50_web_30.yaml", Data: []byte("kind: {")},
			}})
			assert.Equal(t, tt.want, found, "%v", report.Findings)
			if len(report.Findings) > 0 {
				assert.Contains(t, report.Findings[0].Message, tt.says)
			}
		})
	}
}

//threat:duplicate-keys
//threat:mistakes-release-made
func TestEveryRuleHasAnExample(t *testing.T) {
	shown := map[string]bool{"component": true, "component-input": true} // package compose finds these mistakes
	for _, tt := range append(rules(), fromRules()...) {
		for _, f := range tt.want {
			shown[strings.Fields(f)[1]] = true
		}
	}
	for _, id := range finding.RuleIDs() {
		assert.True(t, shown[id], "no test covers the rule %s", id)
	}
}

func fileRules() []rule {
	cm := object("v1", "ConfigMap", "x", "web", "")
	return []rule{
		{
			name: "it finds invalid YAML", says: "line 3",
			files: map[string]string{web: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x\n"},
			want:  []string{"error syntax " + web + ":3"},
		},
		{
			name:  "it continues after an invalid document",
			files: map[string]string{web: "a: {\n---\n" + object("v1", "ConfigMap", "Bad_Name", "web", "")},
			want:  []string{"error syntax " + web + ":1", "error invalid-metadata " + web + ":6"},
		},
		{
			name: "it finds invalid JSON", files: map[string]string{"release-manifests/0000_50_web_10.json": "{\"a\": [1}"},
			want: []string{"error syntax release-manifests/0000_50_web_10.json:1"},
		},
		{name: "it finds NUL bytes", files: map[string]string{web: "a: b\n\x00"}, want: []string{"error not-text " + web + ":2"}},
		{name: "it finds text that is not UTF-8", files: map[string]string{web: cm + "data: {a: \"\xff\"}\n"}, want: []string{"error not-text " + web + ":8"}},
		{name: "it finds a byte order mark", files: map[string]string{web: "\xef\xbb\xbf" + cm}, want: []string{"warning byte-order-mark " + web + ":1"}},
		{
			name: "it finds templates that cannot be rendered", says: "no image",
			files: map[string]string{"manifests/0000_00_operator_10.yaml": cm + "data:\n  a: '{{index .Images \"gone\"}}'\n"},
			want:  []string{"error template manifests/0000_00_operator_10.yaml:9"},
		},
		{
			name:  "it ignores braces in files that are not templates",
			files: map[string]string{web: cm + "data:\n  a: '{{ no template }}'\n"},
		},
		{
			name: "it finds names in another format", says: "runlevel 50",
			files: map[string]string{"release-manifests/web.yaml": cm}, want: []string{"warning file-name release-manifests/web.yaml:0"},
		},
		{
			name: "it finds runlevels with more than two digits", says: "runlevel 99999 does not have two digits",
			files: map[string]string{"release-manifests/0000_99999_web_a.yaml": cm}, want: []string{"warning file-name release-manifests/0000_99999_web_a.yaml:0"},
		},
		{
			name: "it finds runlevels with one digit", says: "runlevel 8 does not have two digits",
			files: map[string]string{"release-manifests/0000_8_web_a.yaml": object("v1", "ConfigMap", "x", "operator", "")}, want: []string{"warning file-name release-manifests/0000_8_web_a.yaml:0"},
		},
		{
			name: "it finds names with control characters", says: `"0000_50_web_\x1b[31m\nb.yaml"`,
			files: map[string]string{"release-manifests/0000_50_web_\x1b[31m\nb.yaml": cm}, want: []string{"warning file-name release-manifests/0000_50_web_\x1b[31m\nb.yaml:0"},
		},
		{
			name: "it finds names that look like flags", says: "is not 0000_NN_<component>_<rest>",
			files: map[string]string{"release-manifests/-rf.yaml": cm}, want: []string{"warning file-name release-manifests/-rf.yaml:0", "warning file-name release-manifests/-rf.yaml:0"},
		},
		{
			name: "it finds names without a fourth part", says: `"web-x"`,
			files: map[string]string{"release-manifests/0000_50_web-x.yaml": cm}, want: []string{"warning file-name release-manifests/0000_50_web-x.yaml:0"},
		},
		{
			name:  "it finds files that are never applied",
			files: map[string]string{"release-manifests/0000_50_web_a.sh": "true", "release-manifests/deep/0000_50_web_a.yaml": cm},
			want:  []string{"warning file-ignored release-manifests/0000_50_web_a.sh:0", "warning file-ignored release-manifests/deep/0000_50_web_a.yaml:0"},
		},
		{name: "it finds files without an object", files: map[string]string{web: "# nothing\n---\n"}, want: []string{"warning no-object " + web + ":0"}},
		{
			name: "it finds lists",
			files: map[string]string{web: "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(cm, "\n", "\n  ") +
				"\n- " + strings.ReplaceAll(object("v1", "ConfigMap", "z", "web", ""), "\n", "\n  ") + "\n"},
			want: []string{"warning list " + web + ":1"},
		},
		{
			name: "it finds duplicate keys", says: `"a"`,
			files: map[string]string{web: "# first\n---\n" + cm + "data:\n  a: b\n  c: d\n  a: e\n"}, want: []string{"warning duplicate-key " + web + ":13"},
		},
	}
}

func annotationRules() []rule {
	annotated := func(kind string, annotations ...string) map[string]string {
		return map[string]string{web: object("v1", kind, "x", "web", "", append([]string{include}, annotations...)...)}
	}
	return []rule{
		{name: "it finds objects without an include annotation", files: map[string]string{web: object("v1", "ConfigMap", "x", "web", "", "a: b")}, want: []string{"warning never-included " + web + ":1"}},
		{
			name: "it finds ineffective include annotations", files: map[string]string{web: object("v1", "ConfigMap", "x", "web", "", strings.Replace(include, "true", "yes", 1))},
			want: []string{"warning include-value " + web + ":7"},
		},
		{name: "it finds unknown profiles", files: annotated("ConfigMap", `include.release.openshift.io/self-managed: "true"`), want: []string{"warning unknown-profile " + web + ":8"}},
		{
			name: "it finds unknown capabilities", says: `"Konsole"`,
			files: annotated("ConfigMap", "capability.openshift.io/name: Console+Konsole"), want: []string{"error unknown-capability " + web + ":8"},
		},
		{
			name: "it finds unknown feature sets", says: "spaces are part of the name",
			files: annotated("ConfigMap", `release.openshift.io/feature-set: "Default, OKD"`), want: []string{"error unknown-feature-set " + web + ":8"},
		},
		{
			name: "it finds gates without a FeatureGate",
			files: map[string]string{
				web: object("v1", "ConfigMap", "x", "web", "", include, "release.openshift.io/feature-gate: A,-B"),
				"release-manifests/0000_10_config_00.yaml": object("config.openshift.io/v1", "FeatureGate", "cluster", "", "status:\n  featureGates:\n  - {version: 1.1.0, enabled: [{name: A}]}\n", include) +
					"---\n" + strings.NewReplacer("example.com", "config.openshift.io", "Gate", "FeatureGate", "gates", "featuregates").Replace(crd("Gate")),
			},
			want: []string{"warning unknown-feature-gate " + web + ":8"}, says: `"B"`,
		},
		{
			name: "it finds feature annotations that exclude each other", files: annotated("ConfigMap", "release.openshift.io/feature-set: Default", "release.openshift.io/feature-gate: A"),
			want: []string{"error feature-annotations " + web + ":9"},
		},
		{name: "it finds contradictory gates", files: annotated("ConfigMap", "release.openshift.io/feature-gate: A,-A"), want: []string{"error feature-annotations " + web + ":8"}},
		{name: "it finds empty gates", files: annotated("ConfigMap", `release.openshift.io/feature-gate: "A,"`), want: []string{"warning empty-entry " + web + ":8"}},
		{name: "it finds an empty list of gates", files: annotated("ConfigMap", `release.openshift.io/feature-gate: ""`), want: []string{"warning empty-entry " + web + ":8"}},
		{
			name: "it finds empty major versions", files: map[string]string{web: crd("Thing", include, `release.openshift.io/major-version: "-5,"`)},
			want: []string{"warning empty-entry " + web + ":7"},
		},
		{name: "it finds major versions on kinds that do not allow them", files: annotated("ConfigMap", `release.openshift.io/major-version: "-2"`), want: []string{"error major-version " + web + ":8"}},
		{
			name: "it finds invalid major versions", files: map[string]string{web: crd("Thing", include, `release.openshift.io/major-version: "four"`)},
			want: []string{"error major-version " + web + ":7"},
		},
		{
			name: "it finds lists of major versions", files: map[string]string{web: crd("Thing", include, `release.openshift.io/major-version: "1,2"`)},
			want: []string{"warning major-version-list " + web + ":7"},
		},
		{
			name: "it finds lists without the release's own major version", says: "own major version, 1",
			files: map[string]string{web: crd("Thing", include, `release.openshift.io/major-version: "-1"`)}, want: []string{"warning major-version-list " + web + ":7"},
		},
		{name: "it accepts the exclusion of a major version", files: map[string]string{web: crd("Thing", include, `release.openshift.io/major-version: "-5"`)}},
		{
			name: "it finds unknown annotations", files: annotated("ConfigMap", "feature-gate.release.openshift.io/A: \"true\"", "release.openshift.io/feature-gates: A"),
			want: []string{"warning unknown-annotation " + web + ":8", "warning unknown-annotation " + web + ":9"},
		},
		{name: "it finds ineffective deletions", files: annotated("ConfigMap", `release.openshift.io/delete: "True"`), want: []string{"error delete-value " + web + ":8"}},
		{name: "it finds invalid values of create-only", files: annotated("ConfigMap", `release.openshift.io/create-only: "yes"`), want: []string{"warning create-only-value " + web + ":8"}},
		{name: "it finds invalid values of on-immutable", files: annotated("ConfigMap", "release.openshift.io/on-immutable: replace"), want: []string{"error on-immutable-value " + web + ":8"}},
		{
			name: "it finds the wait annotation on an object without pods", says: "no effect on a ConfigMap",
			files: annotated("ConfigMap", `cvo.cluster-version.github.io/wait: "false"`), want: []string{"error wait-value " + web + ":8"},
		},
		{
			name: "it finds invalid values of the wait annotation", says: "only \"false\"",
			files: annotated("ConfigMap", `cvo.cluster-version.github.io/wait: "no"`), want: []string{"error wait-value " + web + ":8"},
		},
		{
			name:  "it accepts a workload that no rollout waits for",
			files: map[string]string{web: object("apps/v1", "Deployment", "x", "shop", "spec:\n"+workload("app: web", digestA), include, `cvo.cluster-version.github.io/wait: "false"`)},
			want:  []string{"warning unknown-namespace " + web + ":5"},
		},
		{
			name: "it finds ineffective annotations on a deleted object", files: annotated("ConfigMap", `release.openshift.io/delete: "true"`, `release.openshift.io/create-only: "true"`),
			want: []string{"warning tombstone-annotation " + web + ":9"},
		},
		{
			name: "it finds the deletion of a namespace in use", says: "Deployment.apps shop/x",
			files: map[string]string{web: object("v1", "Namespace", "shop", "", "", include, `release.openshift.io/delete: "true"`) + "---\n" +
				object("apps/v1", "Deployment", "x", "shop", "spec:\n"+workload("app: web", digestA))},
			want: []string{"error tombstone-contradiction " + web + ":1", "warning unknown-namespace " + web + ":13"},
		},
		{
			name: "it finds the deletion of a CRD with objects in the release", says: "Thing.example.com x",
			files: map[string]string{
				web: object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "things.example.com", "", "", include, `release.openshift.io/delete: "true"`) +
					"---\n" + object("example.com/v1", "Thing", "x", "", ""),
			},
			want: []string{"error tombstone-contradiction " + web + ":1", "error unknown-kind " + web + ":10"},
		},
		{
			name: "it reports the deletion of a kind without a CRD in the release", says: "no CRD",
			files: map[string]string{web: tombstone("example.com/v1", "Thing", "x")},
			want:  []string{"info tombstone-kind " + web + ":2"},
		},
		{
			name: "it finds the deletion of a kind that is unknown in a built-in group", says: `"apps"`,
			files: map[string]string{web: tombstone("apps/v1", "Deploiment", "x")},
			want:  []string{"error unknown-kind " + web + ":2"},
		},
		{
			name: "it finds the deletion of the ClusterVersion", files: map[string]string{web: strings.NewReplacer("example.com", "config.openshift.io", "Thing", "ClusterVersion", "things", "clusterversions").Replace(crd("Thing")) + "---\n" +
				object("config.openshift.io/v1", "ClusterVersion", "version", "", "", include, `release.openshift.io/delete: "true"`)},
			want: []string{"error tombstone-contradiction " + web + ":15"},
		},
	}
}

func kindRules() []rule {
	one := func(apiVersion, kind, namespace, rest string) map[string]string {
		return map[string]string{web: object(apiVersion, kind, "x", namespace, rest)}
	}
	older := strings.NewReplacer("served: false", "served: true", "storage: true, schema: {openAPIV3Schema: {type: object}}",
		"storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}").Replace(crd("Thing"))
	return []rule{
		{name: "it finds kinds that no API server serves", says: "no CRD", files: one("example.com/v1", "Thing", "", ""), want: []string{"error unknown-kind " + web + ":2"}},
		{name: "it finds kinds that are unknown in a group", says: `"apps"`, files: one("apps/v1", "Deploiment", "web", ""), want: []string{"error unknown-kind " + web + ":2"}},
		{
			name: "it downgrades errors in objects that no cluster gets", says: "it will never be installed",
			files: map[string]string{web: object("example.com/v1", "Thing", "x", "", "", "a: b")},
			want:  []string{"warning never-included " + web + ":1", "warning unknown-kind " + web + ":2"},
		},
		{
			name: "it finds versions that a CRD does not serve", says: "serves v1, not v1beta1",
			files: map[string]string{web: crd("Thing") + "---\n" + object("example.com/v1beta1", "Thing", "x", "", "")},
			want:  []string{"error unserved-version " + web + ":15"},
		},
		{
			name: "it finds versions that the CRD of some clusters does not serve", says: "the CRD in 0000_50_web_20.yaml serves v1, not v1beta1",
			files: map[string]string{
				web:                                     strings.Replace(crd("Thing", include, "release.openshift.io/feature-set: Default"), "v1beta1, served: false", "v1beta1, served: true", 1),
				"release-manifests/0000_50_web_20.yaml": crd("Thing", include, "release.openshift.io/feature-set: OKD"),
				"release-manifests/0000_50_web_30.yaml": object("example.com/v1beta1", "Thing", "x", "", ""),
			},
			want: []string{"error unserved-version release-manifests/0000_50_web_30.yaml:1"},
		},
		{
			name: "it finds deletions in a version that the CRD no longer serves", says: "serves v1, not v1beta1: nothing is deleted",
			files: map[string]string{web: crd("Thing") + "---\n" + tombstone("example.com/v1beta1", "Thing", "x")},
			want:  []string{"warning unserved-version " + web + ":15"},
		},
		{
			name: "it accepts deletions before the CRD changes",
			files: map[string]string{
				"release-manifests/0000_40_web_10.yaml": tombstone("example.com/v1beta1", "Thing", "x"),
				web:                                     crd("Thing"),
			},
		},
		{
			name: "it finds custom resources that break their CRD's schema", says: "spec.size: must be of type integer (CRD in 0000_50_web_10.yaml)",
			files: map[string]string{
				web: strings.Replace(crd("Thing"), "openAPIV3Schema: {type: object}",
					"openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}", 1) +
					"---\n" + object("example.com/v1", "Thing", "x", "", "spec:\n  size: big\n"),
			},
			want: []string{"error invalid-custom-resource " + web + ":22"},
		},
		{
			name: "it finds custom resources that lack a required field", says: "spec.size: is required (CRD in 0000_50_web_10.yaml)",
			files: map[string]string{
				web: strings.Replace(crd("Thing"), "openAPIV3Schema: {type: object}",
					"openAPIV3Schema: {type: object, properties: {spec: {type: object, required: [size]}}}", 1) +
					"---\n" + object("example.com/v1", "Thing", "x", "", "spec:\n  color: red\n"),
			},
			want: []string{"warning incomplete-custom-resource " + web + ":21"},
		},
		{
			name: "it finds violations of each CRD of a kind once", says: "spec.size: is required (CRD in 0000_60_things_00.yaml)",
			files: map[string]string{
				"release-manifests/0000_60_things_00.yaml": strings.Replace(crd("Thing", include, "release.openshift.io/feature-set: Default"), "openAPIV3Schema: {type: object}",
					"openAPIV3Schema: {type: object, properties: {spec: {type: object, required: [size]}}}", 1),
				"release-manifests/0000_60_things_01.yaml": strings.Replace(crd("Thing", include, "release.openshift.io/feature-set: OKD"), "openAPIV3Schema: {type: object}",
					"openAPIV3Schema: {type: object, properties: {spec: {type: object, required: [size], properties: {color: {type: integer}}}}}", 1),
				"release-manifests/0000_70_things_00.yaml": object("example.com/v1", "Thing", "x", "", "spec:\n  color: red\n"),
			},
			want: []string{
				"warning incomplete-custom-resource release-manifests/0000_70_things_00.yaml:7",
				"error invalid-custom-resource release-manifests/0000_70_things_00.yaml:8",
			},
		},
		{
			name: "it finds versions that lack fields of the storage version", says: "lacks spec, which clients can set in the storage version v1",
			files: map[string]string{
				web: older + "---\n" + object("example.com/v1beta1", "Thing", "x", "", "") + "---\n" +
					object("example.com/v1beta1", "Thing", "created", "", "", include, `release.openshift.io/create-only: "true"`) + "---\n" +
					object("example.com/v1", "Thing", "z", "", "") + "---\n" + tombstone("example.com/v1beta1", "Thing", "deleted"),
			},
			want: []string{"warning pruning-version " + web + ":15"},
		},
		{name: "it accepts versions that a webhook converts", files: map[string]string{
			web: strings.Replace(older, "spec:\n", "spec:\n  conversion: {strategy: Webhook}\n", 1) + "---\n" + object("example.com/v1beta1", "Thing", "x", "", ""),
		}},
		{name: "it accepts fields that no client can set", files: map[string]string{
			web: strings.Replace(older, "served: true", "served: false", 1) + "---\n" + object("example.com/v1beta1", "Thing", "x", "", ""),
		}},
		{name: "it finds versions that never existed in Kubernetes", says: "available versions: v1", files: one("apps/v3", "Deployment", "web", ""), want: []string{"error unserved-version " + web + ":1"}},
		{
			name: "it finds removed versions", says: "policy/v1",
			files: one("policy/v1beta1", "PodDisruptionBudget", "web", ""), want: []string{"error removed-api " + web + ":1"},
		},
		{
			name:  "it finds versions that are off by default",
			files: one("resource.k8s.io/v1beta2", "DeviceClass", "", ""),
			want:  []string{"warning api-off-by-default " + web + ":1"},
		},
		{
			name: "it uses the release's Kubernetes version", says: "removed in 1.25",
			files: map[string]string{
				images: strings.Replace(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.1.0"},"spec":{"tags":[
{"name":"web","annotations":{"io.openshift.build.versions":"kubernetes=1.24.1"},"from":{"kind":"DockerImage","name":"X"}}]}}`, "X", digestA, 1),
				web: object("policy/v1beta1", "PodDisruptionBudget", "x", "web", ""),
			},
			want: []string{"warning deprecated-api " + web + ":1"},
		},
		{name: "it finds namespaced objects without a namespace", files: one("v1", "ConfigMap", "", ""), want: []string{"error missing-namespace " + web + ":3"}},
		{name: "it finds cluster-scoped objects with a namespace", files: one("rbac.authorization.k8s.io/v1", "ClusterRole", "web", ""), want: []string{"warning stray-namespace " + web + ":5"}},
		{name: "it finds namespaces that the release lacks", files: one("v1", "ConfigMap", "shop", ""), want: []string{"warning unknown-namespace " + web + ":5"}},
		{name: "it accepts namespaces that every cluster has", files: one("v1", "ConfigMap", "kube-system", "")},
		{name: "it finds unknown fields", says: "immutble", files: one("v1", "ConfigMap", "web", "immutble: true\n"), want: []string{"warning unknown-field " + web + ":8"}},
		{name: "it finds values with a wrong type", says: "data: type number is wrong", files: one("v1", "ConfigMap", "web", "data:\n  b: x\n  a: 1\n"), want: []string{"error wrong-type " + web + ":8"}},
	}
}

func objectRules() []rule {
	gated := func(set string) string {
		return object("v1", "ConfigMap", "x", "web", "", include, "release.openshift.io/feature-set: "+set)
	}
	operator := func(status string) map[string]string {
		return map[string]string{
			web:                                      object("config.openshift.io/v1", "ClusterOperator", "web", "", status),
			"release-manifests/0000_00_crds_00.yaml": strings.NewReplacer("example.com", "config.openshift.io", "Thing", "ClusterOperator", "things", "clusteroperators").Replace(crd("Thing")),
		}
	}
	const other = "release-manifests/0000_50_other_10.yaml"
	cm := object("v1", "ConfigMap", "x", "web", "")
	return []rule{
		{name: "it finds documents that are not objects", says: "list", files: map[string]string{web: "- a\n"}, want: []string{"error invalid-object " + web + ":1"}},
		{name: "it finds labels that are not strings", says: "quote it", files: map[string]string{web: cm + "  labels:\n    a: true\n"}, want: []string{"error invalid-object " + web + ":9"}},
		{
			name:  "it finds generated names",
			files: map[string]string{web: "apiVersion: batch/v1\nkind: Job\nmetadata:\n  generateName: x-\n"}, want: []string{"error generate-name " + web + ":4"},
		},
		{
			name: "it finds duplicate objects", says: "also in release-manifests/0000_50_other_10.yaml",
			files: map[string]string{web: "# x\n---\n" + cm, other: cm}, want: []string{"error duplicate-object " + web + ":3"},
		},
		{name: "it finds duplicate objects in a file", says: "first as document 1", files: map[string]string{web: cm + "---\n" + cm}, want: []string{"error duplicate-object " + web + ":9"}},
		{name: "it finds objects that are both deleted and applied", says: "deleted here and applied by", files: map[string]string{web: object("v1", "ConfigMap", "x", "web", "", include, `release.openshift.io/delete: "true"`), other: cm}, want: []string{"error duplicate-object " + web + ":1"}},
		{
			name:  "it finds duplicate cluster-scoped objects despite a namespace",
			files: map[string]string{web: object("rbac.authorization.k8s.io/v1", "ClusterRole", "x", "web", ""), other: object("rbac.authorization.k8s.io/v1", "ClusterRole", "x", "", "")},
			want:  []string{"error duplicate-object " + web + ":1", "warning stray-namespace " + web + ":5"},
		},
		{name: "it accepts variants for feature sets", files: map[string]string{web: gated("Default"), other: gated("TechPreviewNoUpgrade,OKD")}},
		{name: "it finds variants for the same feature set", says: "feature set OKD", files: map[string]string{web: gated("Default,OKD"), other: gated("TechPreviewNoUpgrade,OKD")}, want: []string{"error duplicate-object " + web + ":1"}},
		{name: "it accepts variants for profiles", files: map[string]string{web: cm, other: object("v1", "ConfigMap", "x", "web", "", `include.release.openshift.io/hypershift: "true"`)}},
		{
			name: "it accepts variants for gates",
			files: map[string]string{
				web:   object("v1", "ConfigMap", "x", "web", "", include, "release.openshift.io/feature-gate: A"),
				other: object("v1", "ConfigMap", "x", "web", "", include, "release.openshift.io/feature-gate: -A"),
			},
		},
		{name: "it accepts an ImageStream in several documents", files: map[string]string{web: object("image.openshift.io/v1", "ImageStream", "x", "web", ""), other: object("image.openshift.io/v1", "ImageStream", "x", "web", "")}},
		{name: "it finds objects that are nearly too large", files: map[string]string{web: cm + "data: {a: " + strings.Repeat("x", 1<<20) + "}\n"}, want: []string{"warning object-size " + web + ":1"}},
		{
			name: "it finds ConfigMaps with too much data", says: "has 1048577 bytes of data, the limit is 1048576",
			files: map[string]string{web: cm + "data: {a: " + strings.Repeat("x", 1<<20-2) + "}\nbinaryData: {b: YWJj}\n"},
			want:  []string{"error data-size " + web + ":1"},
		},
		{
			name: "it finds Secrets with too much data", says: "has 1048577 bytes of data, the limit is 1048576",
			files: map[string]string{web: object("v1", "Secret", "x", "web", "") + "data: {a: YWJj, b: YWJj}\nstringData: {a: " + strings.Repeat("x", 1<<20-2) + "}\n"},
			want:  []string{"error data-size " + web + ":1"},
		},
		{
			name: "it finds ConfigMap keys that the API server rejects", says: `data has the key "a b/c": a valid config key must consist of`,
			files: map[string]string{web: cm + "data:\n  a.b_c-d: x\n  a b/c: x\n  ..: x\nbinaryData:\n  x y: YWJj\n"},
			want:  []string{"error data-key " + web + ":10", "error data-key " + web + ":11", "error data-key " + web + ":13"},
		},
		{
			name: "it finds keys in both maps of a ConfigMap", says: `the key "a" is in both data and binaryData`,
			files: map[string]string{web: cm + "data:\n  a: x\nbinaryData:\n  b: YWJj\n  a: YWJj\n"},
			want:  []string{"error data-key " + web + ":12"},
		},
		{
			name: "it finds Secret keys that the API server rejects", says: `data has the key "a/b"`,
			files: map[string]string{web: object("v1", "Secret", "x", "web", "") + "data:\n  a/b: YWJj\n  c: YWJj\nstringData:\n  c: x\n  d/e: x\n"},
			want:  []string{"error data-key " + web + ":9", "error data-key " + web + ":13"},
		},
		{
			name:  "it accepts much data of another kind",
			files: map[string]string{web: strings.ReplaceAll(crd("Thing"), "{type: object}", "{type: object, x-kubernetes-preserve-unknown-fields: true}"), other: object("example.com/v1", "Thing", "x", "", "") + "data: {a: " + strings.Repeat("x", 1<<20) + "}\n"},
			want:  []string{"warning object-size " + other + ":1"},
		},
		{
			name: "it finds objects that are too large", says: "bytes as JSON, the limit is 1572864",
			files: map[string]string{web: cm + "data: {a: " + strings.Repeat("x", 3<<19) + "}\n"}, want: []string{"error object-too-large " + web + ":1"},
		},
		{name: "it finds invalid names", files: map[string]string{web: object("v1", "Namespace", "a.b", "", "")}, want: []string{"error invalid-metadata " + web + ":4"}},
		{
			name: "it finds names that are paths", says: `metadata.name: "../x" is not a valid name`,
			files: map[string]string{web: object("v1", "ConfigMap", "../x", "a/b", "")},
			want:  []string{"error invalid-metadata " + web + ":4", "error invalid-metadata " + web + ":5"},
		},
		{name: "it finds invalid labels", files: map[string]string{web: cm + "  labels:\n    a: b/c\n"}, want: []string{"error invalid-metadata " + web + ":8"}},
		{name: "it accepts role names with colons", files: map[string]string{web: object("rbac.authorization.k8s.io/v1", "ClusterRole", "system:web", "", "")}},
		{
			name:  "it finds selectors that select nothing",
			files: map[string]string{web: object("apps/v1", "Deployment", "x", "web", "spec:\n"+workload("app: shop", digestA))}, want: []string{"error selector " + web + ":9"},
		},
		{
			name:  "it finds Jobs that delete themselves",
			files: map[string]string{web: object("batch/v1", "Job", "x", "web", "spec:\n  ttlSecondsAfterFinished: 10\n  template:\n    spec: {restartPolicy: Never, containers: [{name: a, image: "+digestA+"}]}\n")},
			want:  []string{"info job-order " + web + ":1", "warning job-ttl " + web + ":9"},
		},
		{
			name: "it reports the manifests that wait for a Job", says: "delays 3 manifests of 3 components during an update, and 1 manifest of component web during an install",
			files: map[string]string{
				web:                                      object("batch/v1", "Job", "x", "web", "spec:\n  template:\n    spec: {restartPolicy: Never, containers: [{name: a, image: "+digestA+"}]}\n"),
				"release-manifests/0000_50_web_20.yaml":  object("v1", "ConfigMap", "later", "web", ""),
				"release-manifests/0000_90_last_20.yaml": object("v1", "ConfigMap", "last", "web", ""),
			},
			want: []string{"info job-order " + web + ":1"},
		},
		{name: "it finds ClusterOperators without versions", files: operator(""), want: []string{"error operator-versions " + web + ":1"}},
		{name: "it finds ClusterOperators without the operator's version", files: operator("status:\n  versions:\n  - {name: web, version: 1.0.0}\n"), want: []string{"error operator-versions " + web + ":8"}},
		{name: "it finds ClusterOperators that expect another version", files: operator("status:\n  versions:\n  - name: operator\n    version: 1.0.0\n"), want: []string{"warning operator-version " + web + ":10"}},
		{name: "it accepts correct ClusterOperators", files: operator("status:\n  versions:\n  - {name: operator, version: 1.1.0}\n")},
		{
			name: "it finds MachineConfigs before the node stage", says: "runlevel 79",
			files: map[string]string{
				"release-manifests/0000_79_web_00.yaml":  object("machineconfiguration.openshift.io/v1", "MachineConfig", "a", "", ""),
				"release-manifests/0000_80_web_00.yaml":  object("machineconfiguration.openshift.io/v1", "MachineConfig", "b", "", ""),
				"release-manifests/0000_79_crds_00.yaml": strings.NewReplacer("example.com", "machineconfiguration.openshift.io", "Thing", "MachineConfig", "things", "machineconfigs").Replace(crd("Thing")),
			},
			want: []string{"warning machine-config-runlevel release-manifests/0000_79_web_00.yaml:1"},
		},
		{
			name: "it finds ClusterOperators without an operator", says: "component alone",
			files: map[string]string{
				"release-manifests/0000_50_alone_00.yaml": object("config.openshift.io/v1", "ClusterOperator", "x", "", "status:\n  versions:\n  - {name: operator, version: 1.1.0}\n"),
				"release-manifests/0000_00_crds_00.yaml":  strings.NewReplacer("example.com", "config.openshift.io", "Thing", "ClusterOperator", "things", "clusteroperators").Replace(crd("Thing")),
			},
			want: []string{"warning operator-alone release-manifests/0000_50_alone_00.yaml:1"},
		},
		{
			name: "it finds replicas of a workload that an autoscaler scales", says: "HorizontalPodAutoscaler.autoscaling web/x (" + web + ":18) also sets the number of replicas",
			files: scaled("spec:\n  replicas: 2\n"+workload("app: web", digestA), "web", include),
			want:  []string{"warning autoscaled-replicas " + web + ":9"},
		},
		{name: "it accepts an autoscaled workload without replicas", files: scaled("spec:\n"+workload("app: web", digestA), "web", include)},
		{name: "it accepts replicas of another namespace's workload", files: scaled("spec:\n  replicas: 2\n"+workload("app: web", digestA), "operator", include)},
		{
			name:  "it accepts replicas where no cluster has the autoscaler",
			files: scaled("spec:\n  replicas: 2\n"+workload("app: web", digestA), "web", `include.release.openshift.io/single-node-developer: "true"`),
		},
		{
			name:  "it accepts replicas that are only set once",
			files: scaled("spec:\n  replicas: 2\n"+workload("app: web", digestA), "web", include, `release.openshift.io/create-only: "true"`),
		},
	}
}

// scaled returns a Deployment with a spec and annotations, and its autoscaler with a namespace and an annotation.
func scaled(spec, namespace, annotation string, annotations ...string) map[string]string {
	return map[string]string{web: object("apps/v1", "Deployment", "x", "web", spec, append([]string{include}, annotations...)...) + "---\n" +
		object("autoscaling/v2", "HorizontalPodAutoscaler", "x", namespace, `spec:
  maxReplicas: 5
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: x}
`, annotation)}
}

// sharedKeyPolicy returns a trust policy, as a YAML string, with the same key under two names.
func sharedKeyPolicy() string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	data, err := cryptoutils.MarshalPublicKeyToPEM(key.Public())
	if err != nil {
		panic(err)
	}
	return strconv.Quote(fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"spec":{"sigstore":{"publicKeys":[{"name":"a","pem":%[3]q},{"name":"b","pem":%[3]q}]},`+
		`"thresholds":[{"name":"two","required":2,"members":["a","b"]}]}}`, policy.APIVersion, policy.Kind, data)) + "\n"
}

func releaseRules() []rule {
	trust := func(rest string) map[string]string {
		return map[string]string{
			"release-manifests/0000_90_keys_00.yaml": "",
			web:                                      object("v1", "ConfigMap", "keys", "web", rest, include, `release.openshift.io/verification-config-map: ""`),
		}
	}
	run := func(image string) map[string]string {
		return map[string]string{web: object("apps/v1", "Deployment", "x", "web", "spec:\n"+workload("app: web", image))}
	}
	meta := func(text string) map[string]string { return map[string]string{metadata: text} }
	references := func(tags string) map[string]string {
		return map[string]string{images: `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.1.0"},"spec":{"tags":[
{"name":"web","from":{"kind":"DockerImage","name":"` + digestA + `"}},` + "\n" + tags + `]}}`}
	}
	return []rule{
		{
			name: "it finds invalid keys", says: "not an OpenPGP keyring", files: trust("data: {verifier-public-key-a: x, store-a: 'https://a'}\n"),
			want: []string{"error verification " + web + ":9"},
		},
		{
			name: "it finds invalid stores", files: trust("data:\n  store-a: ftp://a\n"),
			want: []string{"error verification " + web + ":1", "error verification " + web + ":10"},
		},
		{
			name: "it finds members of a threshold that share a key", says: `threshold "two": members "a" and "b" share key `,
			files: map[string]string{web: object("v1", "ConfigMap", "trust", "web", "data:\n  trust-policy.yaml: "+sharedKeyPolicy())},
			want:  []string{"warning trust-shared-signer " + web + ":9"},
		},
		{name: "it finds a release without keys for the next release", files: map[string]string{"release-manifests/0000_90_keys_00.yaml": ""}, want: []string{"warning verification-missing release-manifests:0"}},
		{name: "it finds unreplaced version placeholders", files: map[string]string{web: object("v1", "ConfigMap", "x", "web", "data:\n  # 0.0.1-snapshot\n  a: 0.0.1-snapshot-kubernetes\n")}, want: []string{"error version-placeholder " + web + ":10"}},
		{
			name:  "it finds unreplaced placeholders in the operator's own files",
			files: map[string]string{"manifests/0000_00_operator_10.yaml": object("v1", "ConfigMap", "x", "operator", "data: {a: 0.0.1-snapshot}\n")},
			want:  []string{"warning operator-placeholder manifests/0000_00_operator_10.yaml:8"},
		},
		{name: "it finds unreplaced image placeholders", files: run("example.com/image-reference-placeholder:web"), want: []string{"error image-placeholder " + web + ":15"}},
		{name: "it finds images outside the release", says: digestB, files: run(digestB), want: []string{"warning image-not-in-release " + web + ":15"}},
		{name: "it finds images by tag", files: run("registry.example/web:latest"), want: []string{"warning image-by-tag " + web + ":15"}},
		{name: "it finds references by tag", files: references(`{"name":"x","from":{"kind":"DockerImage","name":"registry.example/x:1"}}`), want: []string{"warning image-by-tag " + images + ":3"}},
		{name: "it finds unused images", files: references(`{"name":"x","from":{"kind":"DockerImage","name":"` + digestB + `"}}`), want: []string{"info image-unused " + images + ":3"}},
		{name: "it finds references without an image", files: references(`{"name":"x"}`), want: []string{"error image-references " + images + ":3"}},
		{name: "it finds references for another release", says: "1.1.1", files: meta(`{"kind":"cincinnati-metadata-v0","version":"1.1.1"}`), want: []string{"error image-references " + images + ":1"}},
		{name: "it finds missing references", files: map[string]string{images: ""}, want: []string{"warning image-not-in-release release-manifests/0000_50_web_00.yaml:22", "error image-references " + images + ":0"}},
		{name: "it finds missing metadata", files: meta(""), want: []string{"error metadata " + metadata + ":0"}},
		{name: "it finds invalid versions", files: meta(`{"kind":"cincinnati-metadata-v0","version":"1.1"}`), want: []string{"error metadata " + metadata + ":0"}},
		{
			name:  "it finds invalid previous and next versions",
			files: meta("{\"kind\":\"cincinnati-metadata-v0\",\"version\":\"1.1.0\",\n\"previous\":[\"1.1.0\",\n\"2.0.0\",\n\"1\"],\n\"next\":[\"1.0.0\",\"1.0.0\"]}"),
			want: []string{
				"warning metadata-versions " + metadata + ":1", "warning metadata-versions " + metadata + ":3", "warning metadata-versions " + metadata + ":4",
				"warning metadata-versions " + metadata + ":5", "warning metadata-versions " + metadata + ":5",
			},
		},
		{
			name: "it finds an invalid range of Kubernetes versions", says: `write it as ">=1.30.0 <1.38.0"`,
			files: meta(`{"kind":"cincinnati-metadata-v0","version":"1.1.0","metadata":{
"cvo.cluster-version.github.io/kubernetes-versions":"1.30 and up"}}`),
			want: []string{"error kubernetes-versions " + metadata + ":2"},
		},
		{
			name:  "it accepts a range of Kubernetes versions",
			files: meta(`{"kind":"cincinnati-metadata-v0","version":"1.1.0","metadata":{"cvo.cluster-version.github.io/kubernetes-versions":">=1.30.0 <1.38.0"}}`),
		},
		{name: "it finds invalid addresses", files: meta(`{"kind":"cincinnati-metadata-v0","version":"1.1.0","metadata":{"url":"nowhere"}}`), want: []string{"warning metadata-values " + metadata + ":1"}},
		{name: "it finds a missing folder", files: map[string]string{"manifests/0000_00_operator_00.yaml": ""}, want: []string{"error folder manifests:0"}},
		{
			name: "it finds CRDs after their use, once for all variants", says: "is needed at 50 by Thing.example.com x (release-manifests/0000_50_web_10.yaml)",
			files: map[string]string{
				web: object("example.com/v1", "Thing", "x", "", ""),
				"release-manifests/0000_60_things_00.yaml": crd("Thing", include, "release.openshift.io/feature-set: Default"),
				"release-manifests/0000_60_things_01.yaml": crd("Thing", include, "release.openshift.io/feature-set: OKD"),
			},
			want: []string{"warning crd-after-use release-manifests/0000_60_things_00.yaml:1"},
		},
		{
			name: "it finds namespaces after their use", says: "is needed at 50",
			files: map[string]string{web: object("v1", "ConfigMap", "x", "shop", ""), "release-manifests/0000_60_shop_00.yaml": object("v1", "Namespace", "shop", "", "")},
			want:  []string{"warning namespace-after-use release-manifests/0000_60_shop_00.yaml:1"},
		},
	}
}

func TestNamespaceAfterUseNamesTheFirstUser(t *testing.T) {
	const late, other = "release-manifests/0000_60_shop_00.yaml", "release-manifests/0000_50_web_20.yaml"
	job := func(namespace string) string {
		return object("batch/v1", "Job", "setup", namespace, "spec:\n  template: {spec: {containers: [{name: setup, image: "+digestA+"}], restartPolicy: Never}}\n")
	}
	for _, tt := range []struct {
		name, want string
		files      map[string]string
	}{
		{"a Job of another runlevel", "is at runlevel 60 but is needed at 50 by Job.batch shop/setup (" + web + ")", map[string]string{web: job("shop")}},
		{"an object after a Job", "is at runlevel 60 but is needed at 50 by ConfigMap shop/x (" + other + ")", map[string]string{
			web: job("web"), other: object("v1", "ConfigMap", "x", "shop", "") + "---\n" + object("v1", "ConfigMap", "z", "shop", ""),
		}},
		{"a Job of the same runlevel", "comes after Job.batch shop/setup (release-manifests/0000_60_shop_-.yaml), which needs it", map[string]string{
			"release-manifests/0000_60_shop_-.yaml": job("shop"),
		}},
	} {
		t.Run("it names "+tt.name, func(t *testing.T) {
			tt.files[late] = object("v1", "Namespace", "shop", "", "")
			found, report := check(t, tt.files, lint.Options{Disable: []string{"job-order"}})
			require.Equal(t, []string{"warning namespace-after-use " + late + ":1"}, found)
			assert.Equal(t, "the namespace shop "+tt.want, report.Findings[0].Message)
		})
	}
}

func TestSARIFEscapesFileNames(t *testing.T) {
	_, report := check(t, map[string]string{"release-manifests/a b\x1b.txt": "x"}, lint.Options{})
	encoded, err := json.Marshal(finding.SARIF(report))
	require.NoError(t, err)
	assert.Contains(t, string(encoded), `"uri":"release-manifests/a%20b%1B.txt"`)
}

func TestNamesThatAreNotUTF8AreErrors(t *testing.T) {
	files, err := source.ReadFiles(fstest.MapFS{"release-manifests/0000_50_web_\xff.yaml": {Data: []byte("a: b")}})
	require.NoError(t, err)
	report := lint.Check(files, lint.Options{})
	i := slices.IndexFunc(report.Findings, func(f finding.Finding) bool { return f.Rule == "file-name" })
	require.GreaterOrEqual(t, i, 0, "%v", report.Findings)
	assert.Equal(t, finding.Error, report.Findings[i].Severity)
	assert.Equal(t, `the name "0000_50_web_\xff.yaml" is not UTF-8 text: a cluster rejects the whole release`, report.Findings[i].Message)
}

func TestNameOfTheAuthorsFileIsChecked(t *testing.T) {
	report := lint.Check([]source.File{{
		Name: "release-manifests/0000_50_web_-rf.yaml", Origin: "web/-rf.yaml", Data: []byte(object("v1", "ConfigMap", "x", "default", "")),
	}}, lint.Options{})
	i := slices.IndexFunc(report.Findings, func(f finding.Finding) bool { return f.Rule == "file-name" })
	require.GreaterOrEqual(t, i, 0, "%v", report.Findings)
	assert.Equal(t, "web/-rf.yaml", report.Findings[i].File)
	assert.Contains(t, report.Findings[i].Message, "starts with a hyphen")
}

func TestDisabledRulesFindNothing(t *testing.T) {
	found, _ := check(t, map[string]string{web: "a: {"}, lint.Options{Disable: []string{"syntax"}})
	assert.Empty(t, found)
}

func TestRemovedAPIsDependOnTheKubernetesVersion(t *testing.T) {
	files := map[string]string{web: object("policy/v1beta1", "PodDisruptionBudget", "x", "web", "")}
	found, _ := check(t, files, lint.Options{Kubernetes: "1.20"})
	assert.Empty(t, found)
	found, _ = check(t, map[string]string{web: object("policy/v1", "PodDisruptionBudget", "x", "web", "")}, lint.Options{Kubernetes: "1.20"})
	assert.Equal(t, []string{"error unserved-version " + web + ":1"}, found)
}

// TestFindingsAreBounded lints a release with very many mistakes. The report stays short.
func TestFindingsAreBounded(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "---\n%s", object("v1", "ConfigMap", fmt.Sprintf("Bad_%d", i), "web", ""))
	}
	_, report := check(t, map[string]string{web: text.String()}, lint.Options{})

	assert.Len(t, report.Findings, 51)
	assert.Equal(t, "950 more findings of this rule in this file", report.Findings[0].Message)
}

func TestReportMatchesTheGoldenFile(t *testing.T) {
	_, report := check(t, map[string]string{
		web:    object("v1", "ConfigMap", "x", "", "") + "---\na: {\n",
		images: `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.1.0"},"spec":{"tags":[{"name":"\u001b[2Jx","from":{"kind":"DockerImage","name":"` + digestB + `"}},{"name":"web","from":{"kind":"DockerImage","name":"` + digestA + `"}}]}}`,
	}, lint.Options{})
	var out strings.Builder
	require.NoError(t, finding.WriteText(&out, report, true))
	golden.Assert(t, "text", out.String())
	out.Reset()
	require.NoError(t, finding.WriteText(&out, report, false))
	assert.NotContains(t, out.String(), "image-unused")
	assert.Contains(t, out.String(), "show infos with --info")
	out.Reset()
	encoder := json.NewEncoder(&out)
	encoder.SetIndent("", "  ")
	require.NoError(t, encoder.Encode(finding.SARIF(report)))
	_, results, found := strings.Cut(out.String(), `"results"`)
	require.True(t, found)
	golden.Assert(t, "sarif", `"results"`+results)
}

//threat:whole-releases-including
func FuzzCheck(f *testing.F) {
	all := sound(f)
	for name, text := range all {
		f.Add(name, []byte(text))
	}
	for _, tt := range rules() {
		for name, text := range tt.files {
			f.Add(name, []byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		files := []source.File{{Name: name, Data: data}}
		for _, fixed := range []string{metadata, images, "release-manifests/0000_50_web_00.yaml"} {
			files = append(files, source.File{Name: fixed, Data: []byte(all[fixed])})
		}
		report := lint.Check(files, lint.Options{})
		assert.LessOrEqual(t, len(report.Findings), 60*51)
		for _, f := range report.Findings {
			assert.NotContains(t, f.Remedy, "%!")
			if f.File == name {
				assert.LessOrEqual(t, f.Line, 1+strings.Count(string(data), "\n"))
			}
		}
		require.NoError(t, finding.WriteText(io.Discard, report, true))
	})
}
