package manifest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/manifest"
)

func TestParseNameSplitsFileNames(t *testing.T) {
	for _, tt := range []struct {
		name, file, component string
		runlevel              int
		ok                    bool
	}{
		{"reads the usual form", "0000_50_cluster-dns-operator_02-deployment.yaml", "cluster-dns-operator", 50, true},
		{"reads a leading zero as decimal", "0000_08_x_y.yaml", "x", 8, true},
		{"accepts three digits", "0000_100_x_y.yaml", "x", 100, true},
		{"accepts a name without a fourth part", "0000_90_openshift-cluster-image-policy.yaml", "openshift-cluster-image-policy", 90, true},
		{"accepts a short name with two extensions", "0000_90_olm.crd.yaml", "olm", 90, true},
		{"ignores underscores in the rest", "0000_50_olm_00_a_b.yaml", "olm", 50, true},
		{"requires four zeros", "000_50_x_y.yaml", "", 0, false},
		{"requires digits", "0000_xx_x_y.yaml", "", 0, false},
		{"requires a component", "0000_50__y.yaml", "", 0, false},
		{"rejects dots in a component before an underscore", "0000_50_a.b_y.yaml", "", 0, false},
		{"rejects a number that is too large", "0000_99999999999999999999_x_y.yaml", "", 0, false},
		{"rejects other names", "deployment.yaml", "", 0, false},
		{"rejects an empty name", "", "", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			runlevel, component, ok := manifest.ParseName(tt.file)
			assert.Equal(t, tt.ok, ok)
			assert.Equal(t, tt.runlevel, runlevel)
			assert.Equal(t, tt.component, component)
		})
	}
}

func TestParseAcceptsOtherFileNames(t *testing.T) {
	all, err := manifest.Parse("manifests/my-dashboards.yaml", []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"), manifest.Limits{})
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, "my-dashboards.yaml", all[0].File)
	assert.Equal(t, manifest.DefaultRunlevel, all[0].Runlevel)
	assert.Equal(t, "my-dashboards", all[0].Component)
}

//threat:names-manifest-files
func FuzzParseName(f *testing.F) {
	f.Add("0000_50_dns_x.yaml")
	f.Add("0000_90_openshift-cluster-image-policy.yaml")
	f.Fuzz(func(t *testing.T, file string) {
		runlevel, component, ok := manifest.ParseName(file)
		if !ok {
			assert.Zero(t, runlevel)
			assert.Empty(t, component)
			return
		}
		assert.True(t, strings.HasPrefix(file, "0000_"))
		assert.NotEmpty(t, component)
		assert.GreaterOrEqual(t, runlevel, 0)
		assert.Contains(t, file, component)
	})
}
