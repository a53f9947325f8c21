package precondition_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/precondition"
	"github.com/cluster-version/cvo/pkg/release"
)

// parsed are the manifests of one file.
func parsed(t *testing.T, file, text string) []*manifest.Manifest {
	t.Helper()
	manifests, err := manifest.Parse(file, []byte(text), manifest.Limits{})
	require.NoError(t, err)
	return manifests
}

const (
	oldBudget = "apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {namespace: a, name: a%d%s}\n---\n"
	widgetCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec: {group: example.com, names: {kind: Widget}, versions: [{name: v1, served: true}, {name: v2, served: %t}]}
---
apiVersion: example.com/v2
kind: Widget
metadata: {name: a}
`
)

func TestRemovedAPI(t *testing.T) {
	server := precondition.Server{
		Version: "v1.36.3", Kinds: map[schema.GroupVersionKind]bool{}, Unknown: map[schema.GroupVersion]bool{{Group: "metrics.example.com", Version: "v1"}: true},
	}
	for _, gvk := range [][3]string{
		{"", "v1", "ConfigMap"},
		{"policy", "v1", "PodDisruptionBudget"},
		{"autoscaling", "v2", "HorizontalPodAutoscaler"},
		{"autoscaling", "v1", "HorizontalPodAutoscaler"},
		{"metrics.example.com", "v2", "Meter"},
		{"example.com", "v1", "Widget"},
		{"apiextensions.k8s.io", "v1", "CustomResourceDefinition"},
		{"apiregistration.k8s.io", "v1", "APIService"},
	} {
		server.Kinds[schema.GroupVersionKind{Group: gvk[0], Version: gvk[1], Kind: gvk[2]}] = true
	}
	const before = "APINotServed: Release 1.1.0 uses APIs that the API server, Kubernetes v1.36.3, does not serve: "
	const after = ". Choose a release that is made for this server, or have the server serve them (https://github.com/cluster-version/cvo/blob/main/docs/user/preconditions.md#removedapi)."
	for _, tt := range []struct {
		name string
		text string
		edit func(*precondition.Server)
		want string
	}{
		{name: "it lets what is served pass", text: "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: a, name: a}\n"},
		{
			name: "it names what was removed, and what is served", text: fmt.Sprintf(oldBudget, 1, ""),
			want: before + "policy/v1beta1 PodDisruptionBudget in 0000_50_x_10.yaml (it serves policy/v1)" + after,
		},
		{
			name: "it names an API once", text: fmt.Sprintf(oldBudget, 1, "") + fmt.Sprintf(oldBudget, 2, ""),
			want: before + "policy/v1beta1 PodDisruptionBudget in 0000_50_x_10.yaml and 1 more (it serves policy/v1)" + after,
		},
		{
			name: "it lists the versions that are served", text: "apiVersion: autoscaling/v2beta2\nkind: HorizontalPodAutoscaler\nmetadata: {namespace: a, name: a}\n",
			want: before + "autoscaling/v2beta2 HorizontalPodAutoscaler in 0000_50_x_10.yaml (it serves autoscaling/v1, autoscaling/v2)" + after,
		},
		{
			name: "it knows kinds that are gone from every version", text: "apiVersion: policy/v1\nkind: PodSecurityPolicy\nmetadata: {name: a}\n",
			want: before + "policy/v1 PodSecurityPolicy in 0000_50_x_10.yaml (it serves no PodSecurityPolicy.policy)" + after,
		},
		{name: "it does not mind deletions", text: fmt.Sprintf(oldBudget, 1, `, annotations: {release.openshift.io/delete: "true"}`)},
		{name: "it leaves groups alone that the server does not know", text: "apiVersion: new.example.com/v1\nkind: Thing\nmetadata: {name: a}\n"},
		{name: "it leaves versions alone that cannot be asked", text: "apiVersion: metrics.example.com/v1\nkind: Meter\nmetadata: {name: a}\n"},
		{
			name: "it does not leave others of the group alone", text: "apiVersion: metrics.example.com/v3\nkind: Meter\nmetadata: {name: a}\n",
			want: before + "metrics.example.com/v3 Meter in 0000_50_x_10.yaml (it serves metrics.example.com/v2)" + after,
		},
		{name: "it lets pass what a CRD of the release brings", text: fmt.Sprintf(widgetCRD, true)},
		{
			name: "it does not let pass what a CRD of the release does not serve", text: fmt.Sprintf(widgetCRD, false),
			want: before + "example.com/v2 Widget in 0000_50_x_10.yaml (it serves example.com/v1)" + after,
		},
		{
			name: "it lets pass what an APIService of the release brings",
			text: "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {name: v3.metrics.example.com}\nspec: {group: metrics.example.com, version: v3}\n---\n" +
				"apiVersion: metrics.example.com/v3\nkind: Meter\nmetadata: {name: a}\n",
		},
		{
			name: "it refuses while the server does not answer", text: fmt.Sprintf(oldBudget, 1, ""),
			edit: func(s *precondition.Server) { *s = precondition.Server{Err: errors.New("connection refused")} },
			want: "UnknownError: What the API server serves is not known: connection refused",
		},
		{
			name: "it lets everything pass where nothing was asked", text: fmt.Sprintf(oldBudget, 1, ""),
			edit: func(s *precondition.Server) { *s = precondition.Server{} },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := server
			if tt.edit != nil {
				tt.edit(&s)
			}
			in := precondition.Input{Target: release.Release{Version: "1.1.0"}, Server: s, Manifests: parsed(t, "0000_50_x_10.yaml", tt.text)}
			o := checked(t, "RemovedAPI", in)
			assert.Equal(t, tt.want, said(o))
		})
	}
}

func TestRemovedAPINamesSomeOfMany(t *testing.T) {
	server := precondition.Server{Version: "v1.36.3", Kinds: map[schema.GroupVersionKind]bool{{Group: "policy", Version: "v1", Kind: "X"}: true}}
	var manifests []*manifest.Manifest
	for i := range 40 {
		manifests = append(manifests, parsed(t, "a.yaml", fmt.Sprintf("apiVersion: policy/v1\nkind: Kind%02d\nmetadata: {name: a}\n", i))...)
	}
	o := checked(t, "RemovedAPI", precondition.Input{Target: release.Release{Version: "1.1.0"}, Server: server, Manifests: manifests})
	require.NotNil(t, o)
	assert.Contains(t, o.Message, "policy/v1 Kind04 in a.yaml (it serves no Kind04.policy); and 35 more APIs. Choose")
}
