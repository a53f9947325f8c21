package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/engine/permission"
)

// rolesOf parses the JSON output of "release rbac", by kind and name.
func rolesOf(t *testing.T, args ...string) (roles map[string]rbacv1.ClusterRole, subjects map[string]rbacv1.Subject) {
	t.Helper()
	out, err := runRelease(t, append([]string{"rbac", "-o", "json"}, args...)...)
	require.NoError(t, err)
	var list struct{ Items []json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	roles, subjects = map[string]rbacv1.ClusterRole{}, map[string]rbacv1.Subject{}
	for _, item := range list.Items {
		var role rbacv1.ClusterRole
		require.NoError(t, json.Unmarshal(item, &role))
		key := strings.TrimPrefix(role.Namespace+"/"+role.Name, "/")
		if !strings.HasSuffix(role.Kind, "Binding") {
			roles[key] = role
			continue
		}
		var binding rbacv1.ClusterRoleBinding
		require.NoError(t, json.Unmarshal(item, &binding))
		require.Len(t, binding.Subjects, 1)
		subjects[key] = binding.Subjects[0]
	}
	return roles, subjects
}

func TestReleaseRBACPrintsTheNeededRoles(t *testing.T) {
	from, to := soundRelease(t), soundRelease(t)
	more := filepath.Join(to, "release-manifests", "0000_50_more_01.yaml")
	require.NoError(t, os.WriteFile(more, []byte(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: more, namespace: x, annotations: {include.release.openshift.io/self-managed-high-availability: "true", capability.openshift.io/name: Unheard}}
`), 0o600))
	mentions := func(role rbacv1.ClusterRole) bool { return strings.Contains(role.String(), "statefulsets") }

	for _, tt := range []struct {
		name string
		args []string
		more bool
	}{
		{"excludes rules of other releases", []string{from}, false},
		{"includes rules of unknown capabilities", []string{to}, true},
		{"excludes rules of manifests that the cluster does not get", []string{to, "--capability", "None"}, false},
		{"covers both releases of an update", []string{from, "--from", to}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			roles, subjects := rolesOf(t, tt.args...)
			require.Len(t, roles, 1)
			assert.Equal(t, tt.more, mentions(roles[api.ReleaseRole]))
			assert.Equal(t, map[string]rbacv1.Subject{api.ReleaseRole: {Kind: "ServiceAccount", Namespace: api.OperatorNamespace, Name: api.OperatorServiceAccount}}, subjects)
		})
	}

	t.Run("prints the operator's own roles for another account", func(t *testing.T) {
		roles, subjects := rolesOf(t, from, "--operator", "--service-account", "ops/updater")
		for _, name := range []string{api.ReleaseRole, "cluster-version-operator", "openshift-cluster-version/cluster-version-operator", "openshift-config/cluster-version-operator"} {
			assert.Contains(t, roles, name)
		}
		assert.NotContains(t, roles, "cluster-version-operator-viewer", "the viewer role is for people")
		assert.Contains(t, subjects, api.UpdateRole)
		for name, subject := range subjects {
			assert.Equal(t, rbacv1.Subject{Kind: "ServiceAccount", Namespace: "ops", Name: "updater"}, subject, name)
		}
		for name, role := range roles {
			for _, rule := range role.Rules {
				assert.NotContains(t, rule.String(), `"*"`, name)
			}
		}
	})
	t.Run("prints objects that kubectl can apply", func(t *testing.T) {
		out, err := runRelease(t, "rbac", from)
		require.NoError(t, err)
		documents := strings.Split(out, "---\n")
		require.Len(t, documents, 2)
		for _, document := range documents {
			var object map[string]any
			require.NoError(t, yaml.Unmarshal([]byte(document), &object))
			assert.Equal(t, "rbac.authorization.k8s.io/v1", object["apiVersion"])
		}
	})
	for _, args := range [][]string{{from, "-o", "text"}, {from, "--service-account", "updater"}, {from, "--service-account", "/x"}} {
		_, err := runRelease(t, append([]string{"rbac"}, args...)...)
		var usage *command.UsageError
		assert.ErrorAs(t, err, &usage, "%v", args)
	}
}

// TestReleaseNewAddsASufficientRole checks that the role in a release covers everything in the release, including the role itself. The role
// is reproduced byte for byte, and lint accepts it.
func TestReleaseNewAddsASufficientRole(t *testing.T) {
	platform := []string{"new", "--from-dir", "../../examples/platform/1.0.0", "--name", "1.0.0", "--no-operator", "--created", "2026-01-01T00:00:00Z"}
	dir := filepath.Join(t.TempDir(), "release")
	_, err := runRelease(t, append(platform, "--to-dir", dir)...)
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(dir, "release-manifests", permission.File))
	require.NoError(t, err)
	role, _, _ := strings.Cut(string(data), "---\n")
	var brought rbacv1.ClusterRole
	require.NoError(t, yaml.Unmarshal([]byte(role), &brought))
	roles, _ := rolesOf(t, dir)
	assert.Empty(t, permission.Missing(brought.Rules, roles[api.ReleaseRole].Rules))
	assert.Equal(t, "true", brought.Annotations[api.IncludePrefix+api.DefaultProfile])

	layout := filepath.Join(t.TempDir(), "oci")
	out, err := runRelease(t, append(platform, "--to-oci", layout)...)
	require.NoError(t, err)
	again, err := runRelease(t, "new", "--from-release", layout, "--from-dir", platform[2], "--offline", "--dry-run")
	require.NoError(t, err)
	assert.Equal(t, strings.Fields(out)[0], strings.Fields(again)[0])
}
