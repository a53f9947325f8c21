package override_test

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/inclusion/override"
	"github.com/cluster-version/cvo/pkg/manifest"
)

func TestUnmatchedOverridesNameTheNearestObject(t *testing.T) {
	list, err := manifest.Parse("0000_50_x_y.yaml", []byte(`
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: openshift-dns, name: dns-operator}
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: openshift-dns, name: dns-settings}
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: openshift-dns, name: dns-operator}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: dns}
`), manifest.Limits{})
	require.NoError(t, err)
	var objects []manifest.ID
	for _, m := range list {
		objects = append(objects, m.ID())
	}
	for _, tt := range []struct {
		name     string
		override configv1.ComponentOverride
		want     string
	}{
		{"ignores an override that matches", configv1.ComponentOverride{Group: "apps", Kind: "Deployment", Namespace: "openshift-dns", Name: "dns-operator", Unmanaged: true}, ""},
		{"ignores the namespace of a cluster-scoped object", configv1.ComponentOverride{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Namespace: "x", Name: "dns", Unmanaged: true}, ""},
		{"ignores an override that is not unmanaged", configv1.ComponentOverride{Kind: "Nothing"}, ""},
		{
			"corrects a group with a version",
			configv1.ComponentOverride{Group: "apps/v1", Kind: "Deployment", Namespace: "openshift-dns", Name: "dns-operator", Unmanaged: true},
			`group "apps/v1", kind "Deployment", namespace "openshift-dns", name "dns-operator" (did you mean group "apps"?)`,
		},
		{
			"corrects a kind in lower case and a missing group",
			configv1.ComponentOverride{Kind: "deployment", Namespace: "openshift-dns", Name: "dns-operator", Unmanaged: true},
			`group "", kind "deployment", namespace "openshift-dns", name "dns-operator" (did you mean group "apps", kind "Deployment"?)`,
		},
		{
			"corrects a name",
			configv1.ComponentOverride{Group: "apps", Kind: "Deployment", Namespace: "openshift-dns", Name: "dns-oprator", Unmanaged: true},
			`group "apps", kind "Deployment", namespace "openshift-dns", name "dns-oprator" (did you mean name "dns-operator"?)`,
		},
		{
			"corrects another namespace",
			configv1.ComponentOverride{Kind: "ConfigMap", Namespace: "default", Name: "dns-settings", Unmanaged: true},
			`group "", kind "ConfigMap", namespace "default", name "dns-settings" (did you mean namespace "openshift-dns"?)`,
		},
		{
			"corrects no short name that is entirely different",
			configv1.ComponentOverride{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "etc", Unmanaged: true},
			`group "rbac.authorization.k8s.io", kind "ClusterRole", namespace "", name "etc"`,
		},
		{
			"knows no similar object",
			configv1.ComponentOverride{Group: "batch", Kind: "Job", Namespace: "default", Name: "backup", Unmanaged: true},
			`group "batch", kind "Job", namespace "default", name "backup"`,
		},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			var want []string
			if tt.want != "" {
				want = []string{tt.want}
			}
			assert.Equal(t, want, override.Unmatched(objects, []configv1.ComponentOverride{tt.override}))
		})
	}
}
