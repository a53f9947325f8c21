package apply_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// inNamespace inserts the namespace of a test and the name that all objects in its tables share.
func inNamespace(ns, text string) string {
	return strings.NewReplacer("ns-odd", "odd-"+ns, "NS", ns).Replace(text)
}

// assertQuiet asserts that applying a manifest again writes nothing. The API server's own controllers, which set statuses, may write in
// between, but not forever.
func assertQuiet(t *testing.T, a *apply.Applier, m *manifest.Manifest) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		before := live(t, m)
		change := must(t, a, m)
		if change.ResourceVersion == before.GetResourceVersion() {
			return
		}
		if time.Now().After(end) {
			assert.Fail(t, "applying again must not write", cmp.Diff(before, live(t, m)))
			return
		}
	}
}

// indent indents a block of YAML by a number of levels.
func indent(levels int, text string) string {
	pad := strings.Repeat("  ", levels)
	return pad + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+pad) + "\n"
}

func configMapText(metadata, rest string) string {
	if metadata != "" {
		metadata = ", " + metadata
	}
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NS, namespace: NS" + metadata + "}\n" + rest
}

func secretText(rest string) string {
	return "apiVersion: v1\nkind: Secret\nmetadata: {name: NS, namespace: NS}\n" + rest
}

func serviceText(spec string) string {
	return "apiVersion: v1\nkind: Service\nmetadata: {name: NS, namespace: NS}\nspec:\n" + indent(1, spec)
}

// deploymentText returns a Deployment with the given parts of its pod template and one container.
func deploymentText(metadata, spec string) string {
	if metadata == "" {
		metadata = "metadata: {labels: {app: a}}"
	}
	return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: NS, namespace: NS}\nspec:\n  selector: {matchLabels: {app: a}}\n  template:\n" +
		indent(2, metadata) + "    spec:\n      containers: [{name: c, image: example.com/c}]\n" + indent(3, spec)
}

// containerText returns a Deployment with the given fields of its container.
func containerText(fields string) string {
	return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: NS, namespace: NS}\nspec:\n  selector: {matchLabels: {app: a}}\n  template:\n" +
		"    metadata: {labels: {app: a}}\n    spec:\n      containers:\n      - name: c\n        image: example.com/c\n" + indent(4, fields)
}

// workloadText returns an apps/v1 object of a kind with the given fields of its spec.
func workloadText(kind, spec string) string {
	selector := "  selector: {matchLabels: {app: a}}\n"
	if strings.Contains(spec, "selector: {match") {
		selector = ""
	}
	return "apiVersion: apps/v1\nkind: " + kind + "\nmetadata: {name: NS, namespace: NS}\nspec:\n" + selector +
		"  template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: example.com/c}]}}\n" + indent(1, spec)
}

// crdText returns a CRD of a group with the given fields of its spec and the given schema.
func crdText(group, spec, schema string) string {
	names, _, _ := strings.Cut(spec[strings.Index(spec, "plural: ")+len("plural: "):], "}")
	plural, _, _ := strings.Cut(names, ",")
	return "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: " + plural + "." + group + ".example.com}\nspec:\n" +
		"  group: " + group + ".example.com\n  scope: Cluster\n" + indent(1, spec) +
		"  versions:\n  - name: v1\n    served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n" + indent(4, schema)
}

// kindTest follows one object through two releases and a foreign edit. In the YAML texts, NS stands for the test's namespace and for the
// name of the object.
type kindTest struct {
	name string
	// first is the manifest of the first release.
	first string
	// foreign adds fields next to ours. tamper changes or removes our fields. Both are patches, strategic ones for kinds that support them.
	foreign, tamper string
	// repaired is the expected object after the first manifest is applied again, see mismatches.
	repaired string
	// second is the manifest of the next release. updated is the expected object after it is applied.
	second, updated string
}

// runKindTests asserts for each kind that its object is created, that applying it again writes nothing, that foreign additions stay and
// foreign changes are reverted, and that the next release changes, adds and removes fields.
func runKindTests(t *testing.T, tests []kindTest) {
	t.Helper()
	ns := namespace(t)
	for i, tt := range tests {
		t.Run("it "+tt.name, func(t *testing.T) {
			fill := strings.NewReplacer("namespace: NS", "namespace: "+ns, "NS", ns+"-"+strconv.Itoa(i)).Replace
			a, _ := connect(t, owner)
			first, second := parse(t, fill(tt.first)), parse(t, fill(tt.second))
			require.Equal(t, first.ID(), second.ID())

			require.Equal(t, apply.Created, must(t, a, first).Action)
			assertQuiet(t, a, first)

			foreignEdit(t, first, fill(tt.foreign))
			assertQuiet(t, a, first)
			foreignEdit(t, first, fill(tt.tamper))
			changed := live(t, first).GetResourceVersion()
			require.NotEqual(t, changed, must(t, a, first).ResourceVersion, "the foreign edit must change one of our fields")
			assertMatches(t, fill(tt.repaired), live(t, first).Object)
			assertQuiet(t, a, first)

			must(t, a, second)
			assertMatches(t, fill(tt.updated), live(t, first).Object)
			assertQuiet(t, a, second)
		})
	}
}

// foreignEdit patches an object as another client.
func foreignEdit(t *testing.T, m *manifest.Manifest, text string) {
	t.Helper()
	patch, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	how := types.MergePatchType
	if clientgoscheme.Scheme.Recognizes(m.GVK()) {
		how = types.StrategicMergePatchType
	}
	before := live(t, m)
	after := before.DeepCopy()
	require.NoError(t, otherClient(t).Patch(t.Context(), after, client.RawPatch(how, patch), client.FieldOwner("somebody")))
	require.NotEqual(t, before.GetResourceVersion(), after.GetResourceVersion(), "the foreign edit changed nothing: %s", text)
}

// field returns a value that must exist.
func field(t *testing.T, obj *unstructured.Unstructured, path ...string) any {
	t.Helper()
	value, found, err := unstructured.NestedFieldNoCopy(obj.Object, path...)
	require.NoError(t, err)
	require.True(t, found, path)
	return value
}

func assertMatches(t *testing.T, want string, got map[string]any) {
	t.Helper()
	var expected any
	require.NoError(t, yaml.Unmarshal([]byte(want), &expected))
	if errs := mismatches("", expected, got); len(errs) > 0 {
		text, err := yaml.Marshal(got)
		require.NoError(t, err)
		assert.Fail(t, strings.Join(errs, "\n"), "%s", text)
	}
}

// mismatches compares an expected with an actual value. Maps must have the expected keys; null means that a key must be absent. Lists must
// have the same items; items with names may be in any order. All other values must be equal.
func mismatches(path string, want, got any) []string {
	var errs []string
	switch want := want.(type) {
	case map[string]any:
		there, ok := got.(map[string]any)
		if !ok {
			return []string{fmt.Sprintf("%s: want a map, got %v", path, got)}
		}
		for key, value := range want {
			item := there[key]
			switch {
			case value == nil && item != nil:
				errs = append(errs, fmt.Sprintf("%s.%s: still exists: %v", path, key, item))
			case value != nil && item == nil:
				errs = append(errs, fmt.Sprintf("%s.%s: missing", path, key))
			case value != nil:
				errs = append(errs, mismatches(path+"."+key, value, item)...)
			}
		}
	case []any:
		there, ok := got.([]any)
		if !ok || len(there) != len(want) {
			return []string{fmt.Sprintf("%s: want %v, got %v", path, want, got)}
		}
		for i := range want {
			errs = append(errs, mismatches(fmt.Sprintf("%s[%d]", path, i), want[i], counterpart(want[i], there, i))...)
		}
	default:
		if fmt.Sprint(want) != fmt.Sprint(got) {
			errs = append(errs, fmt.Sprintf("%s: want %v, got %v", path, want, got))
		}
	}
	slices.Sort(errs)
	return errs
}

// counterpart returns the item with the same name, or at the same position if items have no names.
func counterpart(want any, items []any, place int) any {
	named, _ := want.(map[string]any)
	if named["name"] == nil {
		return items[place]
	}
	for _, item := range items {
		if item, ok := item.(map[string]any); ok && item["name"] == named["name"] {
			return item
		}
	}
	return nil
}
