package precondition_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/precondition"
)

// parsed returns the manifests of one file.
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

func TestRemovedAPIsAreRejected(t *testing.T) {
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
	const after = ". Choose a release for this Kubernetes version, or enable the APIs on the server (https://github.com/cluster-version/cvo/blob/main/docs/user/preconditions.md#removedapi)."
	for _, tt := range []struct {
		name string
		text string
		edit func(*precondition.Server)
		want string
	}{
		{name: "it accepts served APIs", text: "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: a, name: a}\n"},
		{
			name: "it reports removed and served versions", text: fmt.Sprintf(oldBudget, 1, ""),
			want: before + "policy/v1beta1 PodDisruptionBudget in 0000_50_x_10.yaml (served: policy/v1)" + after,
		},
		{
			name: "it reports an API once", text: fmt.Sprintf(oldBudget, 1, "") + fmt.Sprintf(oldBudget, 2, ""),
			want: before + "policy/v1beta1 PodDisruptionBudget in 0000_50_x_10.yaml and 1 more (served: policy/v1)" + after,
		},
		{
			name: "it lists all served versions", text: "apiVersion: autoscaling/v2beta2\nkind: HorizontalPodAutoscaler\nmetadata: {namespace: a, name: a}\n",
			want: before + "autoscaling/v2beta2 HorizontalPodAutoscaler in 0000_50_x_10.yaml (served: autoscaling/v1, autoscaling/v2)" + after,
		},
		{
			name: "it rejects kinds that are not served in any version", text: "apiVersion: policy/v1\nkind: PodSecurityPolicy\nmetadata: {name: a}\n",
			want: before + "policy/v1 PodSecurityPolicy in 0000_50_x_10.yaml (no version of PodSecurityPolicy.policy is served)" + after,
		},
		{name: "it ignores tombstones", text: fmt.Sprintf(oldBudget, 1, `, annotations: {release.openshift.io/delete: "true"}`)},
		{name: "it ignores unknown groups", text: "apiVersion: new.example.com/v1\nkind: Thing\nmetadata: {name: a}\n"},
		{name: "it ignores versions whose server does not respond", text: "apiVersion: metrics.example.com/v1\nkind: Meter\nmetadata: {name: a}\n"},
		{
			name: "it rejects other versions of the group", text: "apiVersion: metrics.example.com/v3\nkind: Meter\nmetadata: {name: a}\n",
			want: before + "metrics.example.com/v3 Meter in 0000_50_x_10.yaml (served: metrics.example.com/v2)" + after,
		},
		{name: "it accepts kinds of the release's CRDs", text: fmt.Sprintf(widgetCRD, true)},
		{
			name: "it rejects a version that the release's CRD does not serve", text: fmt.Sprintf(widgetCRD, false),
			want: before + "example.com/v2 Widget in 0000_50_x_10.yaml (served: example.com/v1)" + after,
		},
		{
			name: "it accepts kinds of the release's APIServices",
			text: "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {name: v3.metrics.example.com}\nspec: {group: metrics.example.com, version: v3}\n---\n" +
				"apiVersion: metrics.example.com/v3\nkind: Meter\nmetadata: {name: a}\n",
		},
		{
			name: "it refuses while the server does not respond", text: fmt.Sprintf(oldBudget, 1, ""),
			edit: func(s *precondition.Server) { *s = precondition.Server{Err: errors.New("connection refused")} },
			want: "UnknownError: Cannot read the APIs of the API server: connection refused",
		},
		{
			name: "it accepts everything without a query", text: fmt.Sprintf(oldBudget, 1, ""),
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

func TestRemovedAPIBoundsItsList(t *testing.T) {
	server := precondition.Server{Version: "v1.36.3", Kinds: map[schema.GroupVersionKind]bool{{Group: "policy", Version: "v1", Kind: "X"}: true}}
	var manifests []*manifest.Manifest
	for i := range 40 {
		manifests = append(manifests, parsed(t, "a.yaml", fmt.Sprintf("apiVersion: policy/v1\nkind: Kind%02d\nmetadata: {name: a}\n", i))...)
	}
	o := checked(t, "RemovedAPI", precondition.Input{Target: release.Release{Version: "1.1.0"}, Server: server, Manifests: manifests})
	require.NotNil(t, o)
	assert.Contains(t, o.Message, "policy/v1 Kind04 in a.yaml (no version of Kind04.policy is served); and 35 more APIs. Choose")
}
