package permission_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cluster-version/cvo/pkg/engine/permission"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/test/fixture"
)

func parse(t testing.TB, text string) []*manifest.Manifest {
	t.Helper()
	list, err := manifest.Parse("0000_50_x_01.yaml", []byte(text), manifest.Limits{})
	require.NoError(t, err)
	return list
}

func TestRulesCoverTheRequests(t *testing.T) {
	for _, tt := range []struct {
		name string
		yaml string
		want []string
	}{
		{"lists names of applied objects and watches their kind", `
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: x}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: b, namespace: z}
`, []string{"list,watch configmaps", "create,get,patch,update configmaps a,b"}},
		{"watches Secrets by name", `
apiVersion: v1
kind: Secret
metadata: {name: a, namespace: x}
`, []string{"create,get,list,patch,update,watch secrets a"}},
		{"creates create-only objects by POST", `
apiVersion: v1
kind: Service
metadata: {name: a, namespace: x, annotations: {release.openshift.io/create-only: "true"}}
`, []string{"create,list,watch services", "get,patch,update services a"}},
		{"deletes and lists by name only", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: a, namespace: x, annotations: {release.openshift.io/delete: "true"}}
`, []string{"delete,get,list,watch deployments.apps a"}},
		{"watches the pods of a workload that it waits for", `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: a, namespace: x}
`, []string{"list,watch pods", "list,watch daemonsets.apps", "create,get,patch,update daemonsets.apps a"}},
		{"watches no pods for its own Deployment", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: cluster-version-operator, namespace: openshift-cluster-version}
`, []string{"list,watch deployments.apps", "create,get,patch,update deployments.apps cluster-version-operator"}},
		{"may recreate a failed Job", `
apiVersion: batch/v1
kind: Job
metadata: {name: a, namespace: x}
`, []string{"create,list,watch jobs.batch", "delete,get,patch,update jobs.batch a"}},
		{"may recreate an annotated object", `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: a, annotations: {release.openshift.io/on-immutable: Recreate}}
`, []string{"create,list,watch storageclasses.storage.k8s.io", "delete,get,patch,update storageclasses.storage.k8s.io a"}},
		{"never deletes an annotated namespace", `
apiVersion: v1
kind: Namespace
metadata: {name: a, annotations: {release.openshift.io/on-immutable: recreate}}
`, []string{"list,watch namespaces", "create,get,patch,update namespaces a"}},
		{"writes the first status of a ClusterOperator", `
apiVersion: config.openshift.io/v1
kind: ClusterOperator
metadata: {name: a}
`, []string{
			"create,list,watch clusteroperators.config.openshift.io", "get,patch,update clusteroperators.config.openshift.io a",
			"patch clusteroperators/status.config.openshift.io a",
		}},
		{"escalates and binds only the roles in the manifests", `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: a}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: b, namespace: x}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: c}
subjects: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: d, namespace: x}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: e}
subjects: []
`, []string{
			"list,watch clusterroles.rbac.authorization.k8s.io,rolebindings.rbac.authorization.k8s.io",
			"create,escalate,get,patch,update clusterroles.rbac.authorization.k8s.io a",
			"bind clusterroles.rbac.authorization.k8s.io c",
			"create,get,patch,update rolebindings.rbac.authorization.k8s.io b,d",
			"bind roles.rbac.authorization.k8s.io e",
		}},
		{"contains the rules of a create-only role because a POST contains no name to escalate", `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: a, namespace: x, annotations: {release.openshift.io/create-only: "true"}}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
`, []string{
			"get pods", "create,list,watch roles.rbac.authorization.k8s.io", "get,patch,update roles.rbac.authorization.k8s.io a",
		}},
		{"reads the parameters of admission policies", `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: a}
spec: {paramKind: {apiVersion: rules.example.com/v1, kind: Limit}}
`, []string{
			"list,watch validatingadmissionpolicies.admissionregistration.k8s.io",
			"create,get,patch,update validatingadmissionpolicies.admissionregistration.k8s.io a",
			"get limits.rules.example.com",
		}},
		{"uses the plural names in CRDs", `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: oxen.farm.example.com}
spec: {group: farm.example.com, names: {kind: Ox, plural: oxen}}
---
apiVersion: farm.example.com/v1
kind: Ox
metadata: {name: a}
`, []string{
			"list,watch customresourcedefinitions.apiextensions.k8s.io",
			"create,get,patch,update customresourcedefinitions.apiextensions.k8s.io oxen.farm.example.com",
			"list,watch oxen.farm.example.com", "create,get,patch,update oxen.farm.example.com a",
		}},
		{"may choose the host of a route", `
apiVersion: route.openshift.io/v1
kind: Route
metadata: {name: a, namespace: x}
spec: {host: a.example.com}
`, []string{
			"list,watch routes.route.openshift.io", "create,get,patch,update routes.route.openshift.io a",
			"create,update routes/custom-host.route.openshift.io",
		}},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			manifests := parse(t, tt.yaml)
			rules := permission.Rules(manifests)
			got := permission.Describe(rules, 100)
			slices.Sort(got)
			slices.Sort(tt.want)
			assert.Equal(t, tt.want, got)
			slices.Reverse(manifests)
			assert.Equal(t, rules, permission.Rules(manifests), "the order of manifests does not matter")
		})
	}
}

func rule(verbs, group, resources string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: strings.Split(verbs, ","), APIGroups: []string{group}, Resources: strings.Split(resources, ","), ResourceNames: names}
}

func TestMissingListsUngrantedRules(t *testing.T) {
	wanted := []rbacv1.PolicyRule{rule("get,patch", "apps", "deployments", "a", "b"), rule("list", "apps", "deployments")}
	for _, tt := range []struct {
		name  string
		there []rbacv1.PolicyRule
		want  []string
	}{
		{"lists all rules if none is granted", nil, []string{"list deployments.apps", "get,patch deployments.apps a,b"}},
		{"is empty if the same rules are granted", wanted, nil},
		{"is empty if everything is granted", []rbacv1.PolicyRule{rule("*", "*", "*")}, nil},
		{"is empty if the verbs are granted for any name", []rbacv1.PolicyRule{rule("get,patch,list", "apps", "deployments,daemonsets")}, nil},
		{"lists an ungranted name", []rbacv1.PolicyRule{rule("*", "apps", "deployments", "a"), rule("list", "apps", "*")}, []string{"get,patch deployments.apps b"}},
		{"lists an ungranted verb", []rbacv1.PolicyRule{rule("list,get", "*", "deployments")}, []string{"patch deployments.apps a,b"}},
		{"does not accept a subresource for its resource", []rbacv1.PolicyRule{rule("*", "apps", "deployments/status"), rule("*", "apps", "*/scale")}, []string{"list deployments.apps", "get,patch deployments.apps a,b"}},
		{"lists verbs for any name if they are granted only by name", []rbacv1.PolicyRule{rule("get,patch,list", "apps", "deployments", "a", "b")}, []string{"list deployments.apps"}},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			missing := permission.Missing(tt.there, wanted)
			assert.Equal(t, tt.want, permission.Describe(missing, 10))
			assert.Empty(t, permission.Missing(permission.Union(tt.there, missing), wanted), "the result completes the granted rules")
		})
	}
}

func TestPruneMayListObjectsOfACRD(t *testing.T) {
	rules := permission.Prune([]permission.Orphan{
		{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "oxen.farm.example.com"}, {Kind: "ConfigMap", Name: "a"}, {Kind: "Namespace", Name: "x"},
	})
	assert.Equal(t, []string{
		"delete,get configmaps a", "delete,get customresourcedefinitions.apiextensions.k8s.io oxen.farm.example.com", "list oxen.farm.example.com",
	}, permission.Describe(rules, 10))
}

func TestErrorNamesRulesAndRemedy(t *testing.T) {
	var names []string
	for range 12 {
		names = append(names, "x")
	}
	rules := slices.Repeat([]rbacv1.PolicyRule{rule("get", "", "configmaps", names...)}, 25)
	text := (&permission.Error{Missing: rules, Remedy: "ask"}).Error()
	assert.Contains(t, text, "* get configmaps x,x,x,x,x,x,x,x,x,x and 2 more\n")
	assert.Contains(t, text, "and 5 more rules\nto grant them: ask")
}

// TestRoleOfRealReleasesStaysSmall checks that a role contains only names and kinds, and fits into an object.
func TestRoleOfRealReleasesStaysSmall(t *testing.T) {
	for _, version := range []string{"4.22.9", "4.23.0"} {
		t.Run(version, func(t *testing.T) {
			p, err := payload.Load(os.DirFS(filepath.Join(fixture.Testdata(t), "payloads", version)), "release", payload.Options{})
			require.NoError(t, err)
			data, err := permission.ReleaseManifest(p.Manifests)
			require.NoError(t, err)
			rules := permission.Rules(p.Manifests)
			t.Logf("%d manifests need %d rules, in %d bytes", len(p.Manifests), len(rules), len(data))
			assert.Less(t, len(data), 128<<10)
			for _, r := range rules {
				for _, list := range [][]string{r.APIGroups, r.Resources, r.Verbs, r.ResourceNames} {
					assert.NotContains(t, list, "*")
				}
				if slices.Contains(r.Resources, "secrets") && len(r.ResourceNames) == 0 {
					assert.Equal(t, []string{"create"}, r.Verbs, "only Secrets in the manifests are read")
				}
				if slices.Contains(r.Verbs, "escalate") || slices.Contains(r.Verbs, "bind") || slices.Contains(r.Verbs, "delete") {
					assert.NotEmpty(t, r.ResourceNames, "%v", r)
				}
			}
			role, err := manifest.Parse(permission.File, data, manifest.Limits{})
			require.NoError(t, err)
			require.Len(t, role, 2)
			assert.Empty(t, permission.Missing(rulesOf(t, role[0]), permission.Rules(append(role, p.Manifests...))), "the role covers itself")
		})
	}
}

func rulesOf(t *testing.T, m *manifest.Manifest) []rbacv1.PolicyRule {
	t.Helper()
	var role rbacv1.ClusterRole
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(m.Object.Object, &role))
	return role.Rules
}
