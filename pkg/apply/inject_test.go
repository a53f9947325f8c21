package apply_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/inject"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

var proxy = inject.Values{Proxy: inject.Proxy{HTTP: "http://p", No: "localhost"}}

// podsOf returns a workload of a kind whose pods have containers a and b and init container i.
func podsOf(t *testing.T, ns, kind, inject string) *manifest.Manifest {
	t.Helper()
	version, extra, level := "apps/v1", "selector: {matchLabels: {app: a}}", 1
	switch kind {
	case "Job":
		version, extra = "batch/v1", "backoffLimit: 1"
	case "CronJob":
		version, extra = "batch/v1", "schedule: '* * * * *'"
	case "StatefulSet":
		extra += "\nserviceName: a"
	}
	template := `template:
  metadata: {labels: {app: a}}
  spec:
    containers:
    - {name: a, image: i, env: [{name: NO_PROXY, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, {name: OTHER, value: x}]}
    - {name: b, image: i}
    initContainers: [{name: i, image: i}]
`
	if version == "batch/v1" {
		template += "    restartPolicy: Never\n"
	}
	if kind == "CronJob" {
		extra += "\njobTemplate:\n  spec:"
		level = 3
	}
	return parse(t, "apiVersion: "+version+"\nkind: "+kind+"\nmetadata: {name: x, namespace: "+ns+", annotations: {config.openshift.io/inject-proxy: '"+inject+"'}}\nspec:\n"+
		indent(1, extra)+indent(level, template))
}

func TestProxyIsInjected(t *testing.T) {
	ns := namespace(t)
	for _, kind := range []string{"Deployment", "DaemonSet", "StatefulSet", "Job", "CronJob"} {
		t.Run("it sets the environment of a "+kind, func(t *testing.T) {
			m := podsOf(t, ns, kind, "a, i")
			before := m.Object.DeepCopy()
			assert.True(t, inject.Requested(m))
			a, _ := connect(t, owner)
			a = a.WithValues(proxy)
			must(t, a, m)
			assertQuiet(t, a, m)
			assert.Equal(t, before, m.Object, "the manifest must not change")

			path := []string{"spec", "template", "spec"}
			if kind == "CronJob" {
				path = []string{"spec", "jobTemplate", "spec", "template", "spec"}
			}
			pods, _, err := unstructured.NestedMap(live(t, m).Object, path...)
			require.NoError(t, err)
			injected := []any{
				map[string]any{"name": "HTTP_PROXY", "value": "http://p"},
				map[string]any{"name": "HTTPS_PROXY"}, // set to an empty value
				map[string]any{"name": "NO_PROXY", "value": "localhost"},
			}
			other := []any{map[string]any{"name": "OTHER", "value": "x"}}
			containers, _ := pods["containers"].([]any)
			assert.Equal(t, append(other, injected...), containers[0].(map[string]any)["env"], "injected values override the manifest's")
			assert.NotContains(t, containers[1], "env")
			inits, _ := pods["initContainers"].([]any)
			assert.Equal(t, injected, inits[0].(map[string]any)["env"])
		})
	}
}

func TestUnknownContainersAreRejected(t *testing.T) {
	m := podsOf(t, namespace(t), "Deployment", "a,nobody")
	a, record := connect(t, owner)
	a = a.WithValues(proxy)
	_, err := a.Apply(t.Context(), m, release.Updating)
	var failed *failure.Error
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, api.ReasonResourceInvalid, failed.Reason)
	require.ErrorContains(t, err, `requested injection for non-existent container: "nobody"`)
	assert.Empty(t, record.drain(), "no request is sent")
	_, err = a.Content(m)
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, api.ReasonResourceInvalid, failed.Reason)

	must(t, a.WithValues(inject.Values{}), m) // without a proxy, nothing is injected
}

func TestRemovedProxyIsRemovedFromPods(t *testing.T) {
	m := podsOf(t, namespace(t), "Deployment", "b")
	a, _ := connect(t, owner)
	must(t, a.WithValues(proxy), m)
	must(t, a, m)
	containers, _, err := unstructured.NestedSlice(live(t, m).Object, "spec", "template", "spec", "containers")
	require.NoError(t, err)
	assert.NotContains(t, containers[1], "env")
}

func TestOwnDeploymentGetsTheInternalAddress(t *testing.T) {
	const text = `apiVersion: apps/v1
kind: Deployment
metadata: {namespace: openshift-cluster-version, name: cluster-version-operator}
spec:
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec:
      containers:
      - name: cluster-version-operator
        image: i
        env: [{name: KUBERNETES_SERVICE_PORT, value: "6443"}, {name: KUBERNETES_SERVICE_HOST, value: 127.0.0.1}, {name: A, value: b}]
      - {name: other, image: i}
`
	a, _ := connect(t, owner)
	must(t, a, parse(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: openshift-cluster-version}"))
	m := parse(t, text)
	assert.True(t, inject.Requested(m))
	env := func(i inject.APIServer) (first, second any) {
		must(t, a.WithValues(inject.Values{APIServer: i}), m)
		containers, _, err := unstructured.NestedSlice(live(t, m).Object, "spec", "template", "spec", "containers")
		require.NoError(t, err)
		return containers[0].(map[string]any)["env"], containers[1].(map[string]any)["env"]
	}
	named := func(pairs ...string) (list []any) {
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, map[string]any{"name": pairs[i], "value": pairs[i+1]})
		}
		return list
	}
	first, second := env(inject.APIServer{Host: "api-int.example.com"})
	assert.Equal(t, named("A", "b", "KUBERNETES_SERVICE_HOST", "api-int.example.com", "KUBERNETES_SERVICE_PORT", "443"), first)
	assert.Nil(t, second)
	first, _ = env(inject.APIServer{Host: "fd00::1", Port: "6444"})
	assert.Equal(t, named("A", "b", "KUBERNETES_SERVICE_HOST", "fd00::1", "KUBERNETES_SERVICE_PORT", "6444"), first)
	first, _ = env(inject.APIServer{Port: "6444"})
	assert.ElementsMatch(t, named("KUBERNETES_SERVICE_PORT", "6443", "KUBERNETES_SERVICE_HOST", "127.0.0.1", "A", "b"), first, "without a host, the manifest's values are kept")
}

func TestTLSIsInjected(t *testing.T) {
	ns := namespace(t)
	m := parse(t, `apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: `+ns+`, annotations: {config.openshift.io/inject-tls: "true"}}
data:
  config.yaml: |
    # kept
    apiVersion: operator.openshift.io/v1alpha1
    kind: GenericOperatorConfig
  other: "kind: GenericOperatorConfig"
`)
	assert.True(t, inject.Requested(m))
	before := m.Object.DeepCopy()
	a, _ := connect(t, owner)
	a = a.WithValues(inject.Values{TLS: inject.TLS{MinVersion: "VersionTLS13", CipherSuites: []string{"X"}}})
	must(t, a, m)
	assertQuiet(t, a, m)
	assert.Equal(t, map[string]any{
		"config.yaml": "# kept\napiVersion: operator.openshift.io/v1alpha1\nkind: GenericOperatorConfig\nservingInfo:\n  cipherSuites:\n  - X\n  minTLSVersion: VersionTLS13\n",
		"other":       "kind: GenericOperatorConfig",
	}, live(t, m).Object["data"])
	assert.Equal(t, before, m.Object, "the manifest must not change")
}

func TestContentChangesWithInjectedValues(t *testing.T) {
	plain, _ := connect(t, owner)
	content := func(a *apply.Applier, m *manifest.Manifest) [32]byte {
		sum, err := a.Content(m)
		require.NoError(t, err)
		return sum
	}
	other := plain.WithValues(inject.Values{
		Proxy: proxy.Proxy, TLS: inject.TLSOf(nil), APIServer: inject.APIServer{Host: "api-int"},
	})
	requesting := podsOf(t, "ns", "Deployment", "a")
	assert.NotEqual(t, content(plain, requesting), content(other, requesting))
	assert.Equal(t, content(other, requesting), content(plain.WithValues(proxy), requesting), "only requested values matter")

	silent := podsOf(t, "ns", "Deployment", "a")
	silent.Object.SetAnnotations(nil)
	assert.False(t, inject.Requested(silent))
	assert.Equal(t, content(plain, silent), content(other, silent))
	set := plain
	assert.Equal(t, content(plain, requesting), content(set.WithValues(inject.Values{}), requesting))
}

func TestMembersHaveTheApplySetLabel(t *testing.T) {
	ns := namespace(t)
	member := owner
	member.ApplySet = "applyset-abc-v1"
	a, _ := connect(t, member)
	m := configMap(t, ns, "member", "{}", "{}")
	must(t, a, m)
	assert.Equal(t, map[string]string{api.OwnedByLabel: "version", api.ApplySetLabel: "applyset-abc-v1"}, live(t, m).GetLabels())
	a, _ = connect(t, owner)
	must(t, a, m)
	assert.Equal(t, map[string]string{api.OwnedByLabel: "version"}, live(t, m).GetLabels())
}
