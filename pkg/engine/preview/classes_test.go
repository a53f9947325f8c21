package preview

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/difference"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/body"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/preview/content"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
)

// upgrade previews a second payload after installing the first, in its own namespace.
func upgrade(t *testing.T, namespace string, before, after map[string]string) *Report {
	t.Helper()
	before["0000_00_a_namespace.yaml"], after["0000_00_a_namespace.yaml"] = namespaceOf, namespaceOf
	install(t, files(t, "1.0.0", in(namespace, before)))
	return look(t, files(t, "1.1.0", in(namespace, after)))
}

const roleBinding = `apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: binding, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: a, namespace: NS}]
`

func TestImmutableFieldsAreReported(t *testing.T) {
	recreated := strings.Replace(roleBinding, "{name: binding,", "{name: again, annotations: {release.openshift.io/on-immutable: recreate},", 1)
	report := upgrade(t, "immutable",
		map[string]string{"0000_10_b_binding.yaml": roleBinding, "0000_10_b_again.yaml": recreated},
		map[string]string{
			"0000_10_b_binding.yaml": strings.Replace(roleBinding, "name: view", "name: edit", 1),
			"0000_10_b_again.yaml":   strings.Replace(recreated, "name: view", "name: edit", 1),
		})
	binding := report.the(t, "RoleBinding.rbac.authorization.k8s.io immutable/binding")
	assert.Equal(t, Refuse, binding.Verdict)
	assert.Equal(t, "roleRef cannot be changed: cannot change roleRef", binding.Message)
	assert.Equal(t, []string{"roleRef"}, binding.Paths)
	assert.Contains(t, binding.Remedy, "release.openshift.io/on-immutable: recreate")

	again := report.the(t, "RoleBinding.rbac.authorization.k8s.io immutable/again")
	assert.Equal(t, Recreate, again.Verdict)
	assert.Contains(t, again.Message, "cannot change roleRef")
	assert.Equal(t, 1, report.Totals.Refused)
	assert.Equal(t, 1, report.Totals.Recreated)
}

func TestUnownedDefaultsAreRemoved(t *testing.T) {
	report := upgrade(t, "defaults", map[string]string{"0000_10_b_deployment.yaml": deployment},
		map[string]string{"0000_10_b_deployment.yaml": strings.Replace(deployment, "spec:\n", "spec:\n  strategy: {type: Recreate}\n", 1)})
	object := report.the(t, "Deployment.apps defaults/dns-operator")
	assert.Equal(t, Modify, object.Verdict, object.Message)
	assert.Equal(t, []difference.Field{
		{Op: difference.Removed, Path: "spec.strategy.rollingUpdate", Old: map[string]any{"maxSurge": "25%", "maxUnavailable": "25%"}},
		{Op: difference.Modified, Path: "spec.strategy.type", Old: "RollingUpdate", New: "Recreate"},
	}, object.Fields)
	assert.Contains(t, object.Message, "removed first: spec.strategy.rollingUpdate")
}

//threat:secrets-appear-status
func TestSecretsAreHiddenInErrors(t *testing.T) {
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: NS}\n"
	report := upgrade(t, "secrets", map[string]string{}, map[string]string{
		"0000_10_b_number.yaml": secret + "data: {key: 4711}",
		"0000_10_b_broken.yaml": strings.Replace(secret, "name: a", "name: b", 1) + "data: {key: '%%hunter%%'}",
	})
	data, err := json.Marshal(report)
	require.NoError(t, err)
	for _, name := range []string{"a", "b"} {
		object := report.the(t, "Secret secrets/"+name)
		assert.Equal(t, Refuse, object.Verdict, object.Message)
	}
	assert.NotContains(t, string(data), "4711")
	assert.NotContains(t, string(data), "hunter")
}

func TestAdmissionRejectionsAreReported(t *testing.T) {
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			Request struct{ UID string }
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
			"response": map[string]any{"uid": review.Request.UID, "allowed": false, "status": map[string]any{"message": "not on a Saturday"}},
		})
	}))
	defer webhook.Close()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw}))
	for _, object := range []string{
		webhookConfiguration("denies", webhook.URL, ca), webhookConfiguration("unreachable", "https://127.0.0.1:1", ca),
		`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-config}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE, UPDATE]}]
  validations: [{expression: "object.metadata.name != 'forbidden'", message: "this name is taken"}]
`, `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-config}
spec: {policyName: no-config, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: policy}}}}
`, `apiVersion: v1
kind: Namespace
metadata: {name: quota}
`, `apiVersion: v1
kind: ResourceQuota
metadata: {name: none, namespace: quota}
spec: {hard: {count/services: "0"}}
`,
	} {
		create(t, object)
	}
	config := func(namespace, name string) (string, string) {
		return "0000_20_" + namespace + "_config.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: " + namespace + "}"
	}
	texts := map[string]string{}
	for _, namespace := range []string{"denies", "unreachable", "policy"} {
		name, text := config(namespace, "forbidden")
		texts[name] = text
		create(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+namespace+"}")
	}
	p := files(t, "1.1.0", texts)
	for _, tt := range []struct {
		name, namespace, says, remedy string
		want                          Verdict
	}{
		{"it reports the rejection by a webhook", "denies", "not on a Saturday", "ask the owner of this webhook", Refuse},
		{"it reports the rejection by a policy", "policy", "this name is taken", "change this policy", Refuse},
		{"it reports unknown if the webhook does not respond", "unreachable", "failed calling webhook", "", Unknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.EventuallyWithT(t, func(c *assert.CollectT) { // admission needs a moment to read its configuration
				o := look(t, p).the(t, "ConfigMap "+tt.namespace+"/forbidden")
				assert.Equal(c, tt.want, o.Verdict)
				assert.Contains(c, o.Message, tt.says)
				assert.Contains(c, o.Remedy, tt.remedy)
			}, time.Minute, 100*time.Millisecond)
		})
	}
}

// webhookConfiguration makes the API server call a webhook for the ConfigMaps in the namespace of the same name.
func webhookConfiguration(name, url, ca string) string {
	return `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: ` + name + `}
webhooks:
- name: ` + name + `.example.com
  clientConfig: {url: "` + url + `", caBundle: ` + ca + `}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE, UPDATE]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ` + name + `}}
  sideEffects: None
  admissionReviewVersions: [v1]
  timeoutSeconds: 5
`
}

func TestMissingPermissionsAreReported(t *testing.T) {
	create(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: rights}")
	create(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: rights}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, create, patch]}
`)
	create(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: rights}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: rights}
subjects: [{kind: User, name: reader, apiGroup: rbac.authorization.k8s.io}]
`)
	cfg, err := controlPlane.For(t).User("reader")
	require.NoError(t, err)
	config := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME, namespace: rights}\ndata: {a: b}\n"
	texts := map[string]string{
		"0000_10_a_d1.yaml": strings.NewReplacer("NS", "rights", "dns-operator", "one").Replace(deployment),
		"0000_10_a_d2.yaml": strings.NewReplacer("NS", "rights", "dns-operator", "two").Replace(deployment),
	}
	for _, name := range []string{"a", "b", "c"} { // enough for a LIST, which is forbidden
		texts["0000_10_a_"+name+".yaml"] = strings.Replace(config, "NAME", name, 1)
	}
	create(t, strings.Replace(config, "NAME", "a", 1))
	var report *Report
	require.Eventually(t, func() bool { // the authorizer needs a moment to read permissions
		report, _ = lookBy(t, cfg, files(t, "1.1.0", texts), Options{})
		return report.Totals.NotAsked == 2
	}, time.Minute, 100*time.Millisecond)
	assert.Equal(t, 2, report.Totals.Created)
	assert.Equal(t, 1, report.Totals.Changed, "only our objects have the label")
	require.Len(t, report.NotAllowed, 1)
	assert.Equal(t, "deployments.apps", report.NotAllowed[0].Resource)
	assert.Equal(t, 2, report.NotAllowed[0].Objects)
	assert.Contains(t, report.NotAllowed[0].Message, `User "reader" cannot patch resource "deployments"`)
	var out strings.Builder
	require.NoError(t, WriteText(&out, report, false))
	assert.Contains(t, out.String(), "Not checked because permissions are missing:\n  deployments.apps: 2: ")
	assert.Contains(t, out.String(), "2 not checked")
}

func TestChangedCRDIsPreviewed(t *testing.T) {
	old, next := crd("changing", "v1"), strings.ReplaceAll(crd("changing", "v1", "v2"), "known: {type: string, enum: [a, b]}",
		"known: {type: string, enum: [a, b, c]}, more: {type: string}")
	object := func(version, name, spec string) string {
		return "apiVersion: example.com/" + version + "\nkind: Changing\nmetadata: {name: " + name + "}\nspec: " + spec
	}
	report := upgrade(t, "crds",
		map[string]string{"0000_10_a_crd.yaml": old, "0000_20_a_more.yaml": object("v1", "more", "{known: a}")},
		map[string]string{
			"0000_10_a_crd.yaml": next, "0000_20_a_more.yaml": object("v1", "more", "{known: b, more: x}"),
			"0000_20_a_value.yaml": object("v1", "value", "{known: c}"), "0000_20_a_version.yaml": object("v2", "version", "{known: a}"),
		})
	more := report.the(t, "Changing.example.com more")
	assert.Equal(t, Modify, more.Verdict)
	assert.Equal(t, []string{".spec.more"}, more.Later)
	assert.Empty(t, more.Dropped)
	assert.Equal(t, []difference.Field{
		{Op: difference.Modified, Path: "spec.known", Old: "a", New: "b"}, {Op: difference.Added, Path: "spec.more", New: "x"},
	}, more.Fields)

	value := report.the(t, "Changing.example.com value")
	assert.Equal(t, Unknown, value.Verdict)
	assert.Contains(t, value.Message, "the current CRD rejects the object, but the release changes the CRD first: spec.known: ")

	version := report.the(t, "Changing.example.com version")
	assert.Equal(t, Create, version.Verdict)
	assert.Equal(t, "once its CRD serves example.com/v2", version.Message)
	assert.Equal(t, 1, report.Totals.Unknown)
}

func TestVersionThatTheReleaseStopsServingIsRefused(t *testing.T) {
	object := func(version, name string) string {
		return "apiVersion: example.com/" + version + "\nkind: Dropping\nmetadata: {name: " + name + "}\nspec: {known: a}\n"
	}
	before, after := crd("dropping", "v1", "v1beta1"), crd("dropping", "v1")
	tombstone := strings.Replace(object("v1beta1", "gone"), "{name: gone}", `{name: gone, annotations: {release.openshift.io/delete: "true"}}`, 1)
	report := upgrade(t, "dropping",
		map[string]string{"0000_10_a_crd.yaml": before, "0000_20_a_old.yaml": object("v1beta1", "old"), "0000_20_a_gone.yaml": object("v1", "gone")},
		map[string]string{
			"0000_10_a_crd.yaml": after, "0000_20_a_old.yaml": object("v1beta1", "old"), "0000_20_a_new.yaml": object("v1beta1", "new"),
			"0000_20_a_never.yaml": object("v0", "never"), "0000_20_a_gone.yaml": tombstone, "0000_20_a_moved.yaml": object("v1", "moved"),
		})
	for name, version := range map[string]string{"old": "v1beta1", "new": "v1beta1", "never": "v0"} {
		dropped := report.the(t, "Dropping.example.com "+name)
		assert.Equal(t, Refuse, dropped.Verdict, name)
		assert.Equal(t, "the release's CRD does not serve example.com/"+version, dropped.Message)
		assert.Contains(t, dropped.Remedy, "correct the release's manifest")
	}
	assert.Equal(t, Delete, report.the(t, "Dropping.example.com gone").Verdict)
	assert.Equal(t, Create, report.the(t, "Dropping.example.com moved").Verdict)
}

// TestGraduatingResourcesAreCompared moves custom resources to a version that the release adds to their CRD.
func TestGraduatingResourcesAreCompared(t *testing.T) {
	old := crd("graduating", "v1beta1")
	next := crd("graduating", "v1beta1", "v1")
	const known = "known: {type: string, enum: [a, b]}"
	last := strings.LastIndex(next, known)
	next = next[:last] + "accessPolicy: {type: string, default: deny}, " + next[last:]
	webhook := strings.NewReplacer("graduating", "converting", "Graduating", "Converting", "  scope: Cluster", "  scope: Cluster\n  conversion: {strategy: Webhook, webhook: "+
		"{conversionReviewVersions: [v1], clientConfig: {url: 'https://127.0.0.1:1'}}}").Replace(next)
	object := func(kind, version, name, spec string) string {
		return "apiVersion: example.com/" + version + "\nkind: " + kind + "\nmetadata: {name: " + name + "}\nspec: " + spec
	}
	report := upgrade(t, "graduating",
		map[string]string{
			"0000_10_a_crd.yaml": old, "0000_20_a_default.yaml": object("Graduating", "v1beta1", "default", "{known: a}"),
			"0000_20_a_set.yaml": object("Graduating", "v1beta1", "set", "{known: a}"), "0000_20_a_drop.yaml": object("Graduating", "v1beta1", "drop", "{known: a}"),
			"0000_10_b_crd.yaml": strings.NewReplacer("graduating", "converting", "Graduating", "Converting").Replace(old),
			"0000_20_b_a.yaml":   object("Converting", "v1beta1", "a", "{known: a}"),
		},
		map[string]string{
			"0000_10_a_crd.yaml": next, "0000_20_a_default.yaml": object("Graduating", "v1", "default", "{known: b}"),
			"0000_20_a_set.yaml": object("Graduating", "v1", "set", "{known: b, accessPolicy: allow}"), "0000_20_a_drop.yaml": object("Graduating", "v1", "drop", "{}"),
			"0000_20_a_new.yaml": object("Graduating", "v1", "new", "{known: a}"),
			"0000_10_b_crd.yaml": webhook, "0000_20_b_a.yaml": object("Converting", "v1", "a", "{known: b}"),
		})
	added := func(value string) difference.Field {
		return difference.Field{Op: difference.Added, Path: "spec.accessPolicy", New: value}
	}
	changed := difference.Field{Op: difference.Modified, Path: "spec.known", Old: "a", New: "b"}
	for name, want := range map[string][]difference.Field{
		"default": {added("deny"), changed}, "set": {added("allow"), changed},
		"drop": {added("deny"), {Op: difference.Removed, Path: "spec.known", Old: "a"}},
	} {
		o := report.the(t, "Graduating.example.com "+name)
		assert.Equal(t, Modify, o.Verdict, name)
		assert.Equal(t, want, o.Fields, name)
		assert.Equal(t, "moves from example.com/v1beta1 to example.com/v1, which the cluster does not serve until the update has changed the CRD", o.Message)
	}
	assert.Equal(t, Create, report.the(t, "Graduating.example.com new").Verdict)
	assert.Equal(t, Unknown, report.the(t, "Converting.example.com a").Verdict, "its conversion may change fields")
}

// TestMovesFromTheRunningVersionAreNamed moves a custom resource to a third version of its API, which the release adds.
func TestMovesFromTheRunningVersionAreNamed(t *testing.T) {
	object := func(version, known string) string {
		return "apiVersion: example.com/" + version + "\nkind: Third\nmetadata: {name: a}\nspec: {known: " + known + "}"
	}
	running := files(t, "1.0.0", map[string]string{"0000_10_a_crd.yaml": crd("third", "v1", "v2"), "0000_20_a_a.yaml": object("v2", "a")})
	install(t, running)
	next := files(t, "1.1.0", map[string]string{"0000_10_a_crd.yaml": crd("third", "v1", "v2", "v3"), "0000_20_a_a.yaml": object("v3", "b")})
	options := Options{Running: func(context.Context) ([]*manifest.Manifest, error) { return running.Manifests, nil }}
	report, _ := lookBy(t, controlPlane.For(t).Config("looks"), next, options)
	assert.Equal(t, "moves from example.com/v2 to example.com/v3, which the cluster does not serve until the update has changed the CRD",
		report.the(t, "Third.example.com a").Message)
}

// TestFieldsOfLaterVersionsAreReported moves custom resources back to a version that lacks fields of two others.
func TestFieldsOfLaterVersionsAreReported(t *testing.T) {
	all := crd("returning", "v1", "v1beta2", "v1beta1")
	const known = "known: {type: string, enum: [a, b]}"
	all = strings.Replace(all, known, "accessPolicy: {type: string, default: deny}, theirs: {type: string}, ours: {type: string}, "+known, 2)
	object := func(version, name, spec string) string {
		return "apiVersion: example.com/" + version + "\nkind: Returning\nmetadata: {name: " + name + "}\nspec: " + spec
	}
	install(t, files(t, "1.0.0", in("returning", map[string]string{
		"0000_00_a_namespace.yaml": namespaceOf, "0000_10_a_crd.yaml": all, "0000_20_a_back.yaml": object("v1", "back", "{known: a, ours: x}"),
		"0000_20_a_plain.yaml": object("v1", "plain", "{known: a}"), "0000_20_a_stays.yaml": object("v1beta1", "stays", "{known: a}"),
	})))
	for _, name := range []string{"back", "stays"} {
		for version, patch := range map[string]string{"v1": `{"spec":{"theirs":"y","accessPolicy":"allow"}}`, "v1beta2": `{"metadata":{"labels":{"theirs":"z"}}}`} {
			live := &unstructured.Unstructured{}
			live.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: version, Kind: "Returning"})
			live.SetName(name)
			require.NoError(t, otherClient(t).Patch(t.Context(), live, client.RawPatch("application/merge-patch+json", []byte(patch)), client.FieldOwner("other-"+version)))
		}
	}
	next := files(t, "1.1.0", in("returning", map[string]string{
		"0000_00_a_namespace.yaml": namespaceOf, "0000_10_a_crd.yaml": all, "0000_20_a_back.yaml": object("v1beta1", "back", "{known: a}"),
		"0000_20_a_plain.yaml": object("v1beta1", "plain", "{known: a}"), "0000_20_a_stays.yaml": object("v1beta1", "stays", "{known: a}"),
	}))
	report := look(t, next)
	back := report.the(t, "Returning.example.com back")
	assert.Equal(t, Modify, back.Verdict)
	assert.Equal(t, []difference.Field{
		{Op: difference.Modified, Path: "spec.accessPolicy", Old: "allow", New: "deny"},
		{Op: difference.Removed, Path: "spec.ours", Old: "x"},
		{Op: difference.Removed, Path: "spec.theirs", Old: "y"},
	}, back.Fields)
	assert.Len(t, report.Objects, 1, "the server adds the default of the others again, and the update does not apply an object that keeps its version")

	t.Run("it reports an object that cannot be read in another version", func(t *testing.T) {
		cfg := controlPlane.For(t).Config("looks")
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return failing{next, "/apis/example.com/v1beta2/returnings/back"}
		})
		report, _ := lookBy(t, cfg, next, Options{})
		assert.Equal(t, NotAsked, report.the(t, "Returning.example.com back").Verdict)
	})
}

// failing answers requests for a path with status 500.
type failing struct {
	next http.RoundTripper
	path string
}

func (f failing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path != f.path {
		return f.next.RoundTrip(r)
	}
	response := httptest.NewRecorder()
	http.Error(response, "broken", http.StatusInternalServerError)
	return response.Result(), nil
}

func TestCustomResourcesMatchTheReleasesOwnCRDs(t *testing.T) {
	limited := func(plural string) string {
		return strings.ReplaceAll(crd(plural, "v1", "v2"), "known: {type: string, enum: [a, b]}", "known: {type: string, enum: [b]}")
	}
	object := func(kind, version, name, annotations, spec string) string {
		return "apiVersion: example.com/" + version + "\nkind: " + kind + "\nmetadata: {name: " + name + ", annotations: {" + annotations + "}}\nspec: " + spec
	}
	const once = "release.openshift.io/create-only: 'true'"
	report := upgrade(t, "schemas",
		map[string]string{
			"0000_10_a_crd.yaml": crd("tightened", "v1"), "0000_20_a_exists.yaml": object("Tightened", "v1", "exists", "", "{known: a}"),
			"0000_20_a_once.yaml": object("Tightened", "v1", "once", once, "{known: a}"),
		},
		map[string]string{
			"0000_10_a_crd.yaml": limited("tightened"), "0000_20_a_exists.yaml": object("Tightened", "v1", "exists", "", "{known: a}"),
			"0000_20_a_once.yaml": object("Tightened", "v1", "once", once, "{known: a}"),
			"0000_20_a_v2.yaml":   object("Tightened", "v2", "v2", "", "{known: a}"), "0000_20_a_valid.yaml": object("Tightened", "v2", "valid", "", "{known: b}"),
			"0000_10_a_new.yaml": limited("fresh"), "0000_20_a_fresh.yaml": object("Fresh", "v1", "fresh", "", "{known: a}"),
			"0000_20_a_good.yaml": object("Fresh", "v1", "good", "", "{known: b}"),
		})
	for id, want := range map[string]Verdict{
		"Tightened.example.com exists": Refuse, "Tightened.example.com v2": Refuse, "Tightened.example.com valid": Create,
		"Fresh.example.com fresh": Refuse, "Fresh.example.com good": Create,
	} {
		o := report.the(t, id)
		assert.Equal(t, want, o.Verdict, id)
		if want == Refuse {
			assert.Equal(t, "the object breaks the schema of the release's CRD: spec.known: must be one of [b]", o.Message, id)
			assert.Equal(t, []string{"spec.known"}, o.Paths, id)
		}
	}
	for _, o := range report.Objects {
		assert.NotEqual(t, "once", o.ID.Name, "an existing object is kept")
	}
}

// The release's CRD names the field that its scale subresource writes.
func TestDroppedReplicasOfACustomResourceStay(t *testing.T) {
	scaled := strings.NewReplacer("served: true", "served: true\n    subresources: {scale: {specReplicasPath: .spec.count, statusReplicasPath: .status.count}}",
		"known: {", "count: {type: integer, default: 1}, known: {").Replace(crd("pool", "v1"))
	pool := func(spec string) map[string]string {
		return map[string]string{
			"0000_10_a_crd.yaml": scaled, "0000_20_a_pool.yaml": "apiVersion: example.com/v1\nkind: Pool\nmetadata: {name: pool}\nspec: " + spec,
		}
	}
	pooled := upgrade(t, "pools", pool("{known: a, count: 3}"), pool("{known: b}")).the(t, "Pool.example.com pool")
	assert.Equal(t, []difference.Field{{Op: difference.Modified, Path: "spec.known", Old: "a", New: "b"}}, pooled.Fields)
	assert.Equal(t, "spec.count stays at 3, because the manifest no longer sets it", pooled.Message)

	only := upgrade(t, "onlypools", pool("{known: a, count: 3}"), pool("{known: a}")).the(t, "Pool.example.com pool")
	assert.Equal(t, Nothing, only.Verdict, "the number of replicas is the only difference")
	assert.Equal(t, "spec.count stays at 3, because the manifest no longer sets it", only.Message)
}

// Another client may set a field that the release's CRD requires.
func TestRequiredFieldsMayHaveAnotherOwner(t *testing.T) {
	object := func(name, spec string) string {
		return "apiVersion: example.com/v1\nkind: Shared\nmetadata: {name: " + name + "}\nspec: " + spec
	}
	next := strings.Replace(crd("shared", "v1"), "spec: {type: object,", "spec: {type: object, required: [known],", 1)
	before := map[string]string{"0000_10_a_crd.yaml": crd("shared", "v1"), "0000_20_a_theirs.yaml": object("theirs", "{}"), "0000_20_a_ours.yaml": object("ours", "{known: a}")}
	install(t, files(t, "1.0.0", before))
	theirs := thing(t, object("theirs", "{known: a}"))
	require.NoError(t, otherClient(t).Patch(t.Context(), theirs, client.Merge, client.FieldOwner("kubectl")))
	report := look(t, files(t, "1.1.0", map[string]string{
		"0000_10_a_crd.yaml": next, "0000_20_a_theirs.yaml": object("theirs", "{}"), "0000_20_a_ours.yaml": object("ours", "{}"),
		"0000_20_a_new.yaml": object("new", "{}"),
	}))
	for _, o := range report.Objects {
		assert.NotEqual(t, "theirs", o.ID.Name)
	}
	for _, name := range []string{"ours", "new"} {
		o := report.the(t, "Shared.example.com "+name)
		assert.Equal(t, Refuse, o.Verdict, name)
		assert.Contains(t, o.Message, "spec.known: is required", name)
	}
}

func TestAdoptionIsPreviewed(t *testing.T) {
	create(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: adoption}")
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: adoption}\ndata: {a: b}\n"
	object := thing(t, text)
	require.NoError(t, unstructured.SetNestedField(object.Object, "x", "data", "dropped"))
	require.NoError(t, otherClient(t).Create(t.Context(), object, client.FieldOwner("cluster-version-operator")))
	other := thing(t, strings.Replace(text, "name: a", "name: b", 1))
	require.NoError(t, otherClient(t).Create(t.Context(), other, client.FieldOwner("kubectl")))

	report := look(t, files(t, "1.1.0", map[string]string{
		"0000_10_a_a.yaml": text, "0000_10_a_b.yaml": strings.Replace(text, "name: a", "name: b", 1),
	}))
	assert.Equal(t, []string{"cluster-version-operator"}, report.the(t, "ConfigMap adoption/a").TakenOver)
	assert.Empty(t, report.the(t, "ConfigMap adoption/b").TakenOver)
}

func TestDeletionIsPreviewed(t *testing.T) {
	tombstone := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME, namespace: deletion, annotations: {release.openshift.io/delete: 'true'}}"
	create(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: deletion}")
	create(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plain, namespace: deletion}")
	held := create(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: held, namespace: deletion, finalizers: [example.com/a]}")
	going := create(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: going, namespace: deletion, finalizers: [example.com/a]}")
	require.NoError(t, otherClient(t).Delete(t.Context(), going))
	t.Cleanup(func() {
		for _, object := range []*unstructured.Unstructured{held, going} {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
			assert.NoError(t, otherClient(t).Patch(context.Background(), object, patch)) //nolint:usetesting // the test's own context has ended
		}
	})
	texts := map[string]string{}
	for _, name := range []string{"plain", "held", "going", "nothing"} {
		texts["0000_10_a_"+name+".yaml"] = strings.Replace(tombstone, "NAME", name, 1)
	}
	p := files(t, "1.1.0", texts)
	report := look(t, p)
	assert.Equal(t, "with all objects that it owns", report.the(t, "ConfigMap deletion/plain").Message)
	assert.Equal(t, "with all objects that it owns; waits for its finalizers example.com/a", report.the(t, "ConfigMap deletion/held").Message)
	assert.Equal(t, "as already requested by another client; waits for its finalizers example.com/a", report.the(t, "ConfigMap deletion/going").Message)
	assert.Equal(t, 3, report.Totals.Deleted)
	assert.Equal(t, 1, report.Totals.Unchanged)

	report, _ = lookBy(t, controlPlane.For(t).Config("installs"), p, Options{Mode: "Initializing"})
	assert.Zero(t, report.Totals.Deleted, "an install deletes nothing")
}

func TestGuardRejectsWrites(t *testing.T) {
	m, err := manifest.Parse("0000_10_a_b.yaml", []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: guarded, namespace: default}"), manifest.Limits{})
	require.NoError(t, err)
	applier, err := connect(controlPlane.For(t).Config("guard"), Options{}, content.Of(nil))
	require.NoError(t, err)
	_, err = applier.Apply(t.Context(), m[0], "Updating")
	require.ErrorContains(t, err, "blocked PATCH /api/v1/namespaces/default/configmaps/guarded: it is not a dry run")
}

func TestOrphansOfTheReleaseAreListed(t *testing.T) {
	p := files(t, "1.1.0", map[string]string{"0000_10_a_b.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: named, namespace: default}"})
	config := func(name string) manifest.ID { return manifest.ID{Kind: "ConfigMap", Namespace: "default", Name: name} }
	excluded, err := manifest.Parse("0000_10_a_c.yaml", []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: excluded, namespace: default}"), manifest.Limits{})
	require.NoError(t, err)
	p.Excluded = []payload.Exclusion{{Manifest: excluded[0], Reason: "test"}}
	install(t, files(t, "1.0.0", map[string]string{"0000_10_a_b.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: dropped, namespace: default}\n" +
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: controlled, namespace: default}\n" +
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: once, namespace: default}\n" +
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: unmanaged, namespace: default}"}))
	controlled := &unstructured.Unstructured{}
	controlled.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	require.NoError(t, otherClient(t).Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "controlled"}, controlled))
	controlled.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "other", UID: "u", Controller: new(true)}})
	require.NoError(t, otherClient(t).Update(t.Context(), controlled))
	inv := inventory.Inventory{Release: "1.0.0"}
	for _, record := range []inventory.Record{
		{ID: config("named")},
		{ID: config("excluded")},
		{ID: config("dropped"), Release: "0.9.0", Dropped: "1.0.0"},
		{ID: config("controlled")},
		{ID: config("gone")},
		{ID: config("once"), CreateOnly: true},
		{ID: config("unmanaged")},
		{ID: manifest.ID{Kind: "Namespace", Name: "a"}},
	} {
		record.Version, record.Release = "v1", cmp.Or(record.Release, "1.0.0")
		inv = inv.With(record)
	}
	for _, tt := range []struct {
		name               string
		release, byRequest bool
		want               string
	}{
		{"it reports that orphans are kept", false, false, `No longer part of the release:
  ConfigMap default/controlled  from 1.0.0, stays
  ConfigMap default/dropped  from 0.9.0, stays
  ConfigMap default/gone  from 1.0.0, stays
  ConfigMap default/once  from 1.0.0, stays
  ConfigMap default/unmanaged  from 1.0.0, stays
  Namespace a  from 1.0.0, stays
`},
		{"it reports a deletion that the administrator requested", false, true, prunedText},
		{"it reports a deletion that the release requested", true, false, prunedText},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p.Release.Prune = tt.release
			cv := &configv1.ClusterVersion{}
			cv.Spec.Overrides = []configv1.ComponentOverride{{Kind: "ConfigMap", Namespace: "default", Name: "unmanaged", Unmanaged: true}}
			if tt.byRequest {
				cv.Annotations = map[string]string{api.PruneAnnotation: "true"}
			}
			report, _ := lookBy(t, controlPlane.For(t).Config("looks"), p, Options{Inventory: inv, Pruning: inventory.PruningOf(cv)})
			var out strings.Builder
			require.NoError(t, WriteText(&out, report, false))
			assert.Contains(t, out.String(), tt.want)
			assert.Equal(t, tt.release || tt.byRequest, strings.HasSuffix(out.String(), ", 5 no longer part of the release, 1 of these deleted after the update\n"), out.String())
		})
	}
}

// prunedText omits the object that no longer exists.
const prunedText = `No longer part of the release:
  ConfigMap default/controlled  from 1.0.0, stays: Secret other is its controller
  ConfigMap default/dropped  from 0.9.0, deleted once the update is complete
  ConfigMap default/once  from 1.0.0, stays: it is create-only, so it belongs to other clients
  ConfigMap default/unmanaged  from 1.0.0, stays: spec.overrides marks it as unmanaged
  Namespace a  from 1.0.0, stays: the operator never prunes objects of kind Namespace, because their content would also be deleted: use a tombstone to delete it
`

// The API server cannot read the object in the manifest's version, because a field has another type there. Another client has cleared its
// managedFields, so only the running release shows that the field is ours.
func TestUnreadableObjectIsPreviewedWithTheRunningRelease(t *testing.T) {
	const kind = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gauges.unreadable.example.com}
spec:
  group: unreadable.example.com
  scope: Cluster
  names: {kind: Gauge, plural: gauges, singular: gauge, listKind: GaugeList}
  versions:
  - name: v1beta1
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {note: {type: string}}}}}}
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {port: {type: integer}, note: {type: array, items: {type: string}}}}}}}
`
	const first = "apiVersion: unreadable.example.com/v1beta1\nkind: Gauge\nmetadata: {name: g}\nspec: {note: old}"
	running := files(t, "1.0.0", map[string]string{"0000_10_a_a.yaml": kind, "0000_10_a_b.yaml": first})
	install(t, running)
	object := thing(t, first)
	t.Cleanup(func() {
		for _, o := range []*unstructured.Unstructured{object, thing(t, kind)} {
			assert.NoError(t, otherClient(t).Delete(context.Background(), o)) //nolint:usetesting // the test's own context has ended
		}
	})
	require.NoError(t, otherClient(t).Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"managedFields":[{}]}}`))))
	id := manifest.ID{Group: "unreadable.example.com", Kind: "Gauge", Name: "g"}
	options := Options{Inventory: inventory.Inventory{Release: "1.0.0"}.With(inventory.Record{ID: id, Release: "1.0.0", UID: object.GetUID()})}
	next := files(t, "1.1.0", map[string]string{"0000_10_a_b.yaml": "apiVersion: unreadable.example.com/v1\nkind: Gauge\nmetadata: {name: g}\nspec: {port: 80}"})

	report, _ := lookBy(t, controlPlane.For(t).Config("looks"), next, options)
	assert.Equal(t, 1, report.Totals.Unknown, "the origin of the value is unknown")
	options.Running = func(context.Context) ([]*manifest.Manifest, error) { return []*manifest.Manifest{}, nil }
	report, _ = lookBy(t, controlPlane.For(t).Config("looks"), next, options)
	require.Equal(t, 1, report.Totals.Refused, "the value is another client's")
	assert.Contains(t, report.Objects[0].Remedy, "correct or remove the named value in the object")
	options.Running = func(context.Context) ([]*manifest.Manifest, error) { return running.Manifests, nil }
	report, _ = lookBy(t, controlPlane.For(t).Config("looks"), next, options)
	assert.Equal(t, 1, report.Totals.Changed, "%+v", report.Objects)
}

// Another client has cleared the managedFields of an object, so the update takes its fields back and removes those that the release drops.
func TestDiscardedFieldsThatTheReleaseDropsAreRemoved(t *testing.T) {
	const first = "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: default, name: discarded}\ndata: {stays: a, goes: b}"
	running := files(t, "1.0.0", map[string]string{"0000_10_a_b.yaml": first})
	install(t, running)
	object := thing(t, first)
	t.Cleanup(func() {
		assert.NoError(t, otherClient(t).Delete(context.Background(), object)) //nolint:usetesting // the test's own context has ended
	})
	edit := `{"metadata":{"managedFields":[{}]},"data":{"theirs":"c"}}`
	require.NoError(t, otherClient(t).Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(edit))))
	id := manifest.ID{Kind: "ConfigMap", Namespace: "default", Name: "discarded"}
	options := Options{
		Inventory: inventory.Inventory{Release: "1.0.0"}.With(inventory.Record{ID: id, Release: "1.0.0", UID: object.GetUID()}),
		Running:   func(context.Context) ([]*manifest.Manifest, error) { return running.Manifests, nil },
	}
	next := files(t, "1.1.0", map[string]string{"0000_10_a_b.yaml": strings.Replace(first, ", goes: b", "", 1)})
	report, _ := lookBy(t, controlPlane.For(t).Config("looks"), next, options)
	require.Len(t, report.Objects, 1)
	assert.Equal(t, "takes back its fields, whose owners the server has discarded", report.Objects[0].Message)
	require.Len(t, report.Objects[0].Fields, 1, "another client's field stays")
	assert.Equal(t, `- data.goes: "b"`, strings.TrimSpace(report.Objects[0].Fields[0].Line(true)))
}

// Another client has changed a failed Job. An update repairs it, and recreates it only if the release changes its manifest.
func TestFailedJobsRunAgainOnlyIfTheirManifestChanges(t *testing.T) {
	const first = `apiVersion: batch/v1
kind: Job
metadata: {namespace: default, name: failed, annotations: {note: x}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}`
	p := files(t, "1.0.0", map[string]string{"0000_10_a_b.yaml": first})
	install(t, p)
	object := thing(t, first)
	t.Cleanup(func() {
		background := client.PropagationPolicy(metav1.DeletePropagationBackground)
		assert.NoError(t, otherClient(t).Delete(context.Background(), object, background)) //nolint:usetesting // the test's own context has ended
	})
	merge := func(text string) client.Patch { return client.RawPatch("application/merge-patch+json", []byte(text)) }
	require.NoError(t, otherClient(t).Patch(t.Context(), object, merge(`{"metadata":{"annotations":{"note":"y"}}}`)))
	at := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	require.NoError(t, otherClient(t).Status().Patch(t.Context(), object, merge(`{"status":{"startTime":"`+at+`","conditions":[
		{"type":"FailureTarget","status":"True","lastTransitionTime":"`+at+`"},{"type":"Failed","status":"True","lastTransitionTime":"`+at+`"}]}}`)))
	builder := body.Builder{Owner: owner}
	sum, err := builder.Hash(p.Manifests[0])
	require.NoError(t, err)
	id := manifest.ID{Group: "batch", Kind: "Job", Namespace: "default", Name: "failed"}
	for content, want := range map[inventory.Content]Verdict{inventory.ContentOf(sum): Modify, {1}: Recreate} {
		inv := inventory.Inventory{Release: "1.0.0"}.With(inventory.Record{ID: id, Release: "1.0.0", UID: object.GetUID(), Content: content})
		report, _ := lookBy(t, controlPlane.For(t).Config("looks"), p, Options{Inventory: inv})
		require.Len(t, report.Objects, 1)
		assert.Equal(t, want, report.Objects[0].Verdict, report.Objects[0].Message)
	}
}
