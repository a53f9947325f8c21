package cluster_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli/cluster"
)

func TestErrorsNameTheKubeconfigAndTheRemedy(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	absent, empty := filepath.Join(dir, "absent"), file("empty", "")
	invalid := file("invalid", "contexts: 1")
	other := file("other", `
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://127.0.0.1"}}]
contexts: [{name: a, context: {cluster: a}}]
current-context: a
`)
	for _, test := range []struct {
		name, variable string
		args           []string
		want           string
	}{
		{
			"an absent file in $KUBECONFIG", absent, nil,
			"finding the cluster: no cluster in " + absent + ": set --kubeconfig or $KUBECONFIG to the kubeconfig of a cluster",
		},
		{
			"an empty file", "",
			[]string{"--kubeconfig", empty},
			"finding the cluster: no cluster in " + empty + ": set --kubeconfig or $KUBECONFIG to the kubeconfig of a cluster",
		},
		{
			"an absent file", "",
			[]string{"--kubeconfig", absent, "--context", "a"},
			"finding the cluster: stat " + absent + ": no such file or directory: set --kubeconfig to an existing file",
		},
		{
			"an unknown context", "",
			[]string{"--kubeconfig", other, "--context", "b"},
			`finding the cluster: context "b" does not exist: choose an entry of 'kubectl config get-contexts'`,
		},
		{"an invalid file", "", []string{"--kubeconfig", invalid}, "finding the cluster: error loading config file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", test.variable)
			var flags cluster.ContextFlags
			set := pflag.NewFlagSet("test", pflag.ContinueOnError)
			flags.Add(set)
			require.NoError(t, set.Parse(test.args))
			_, err := flags.Config()
			require.ErrorContains(t, err, test.want)
			assert.NotContains(t, err.Error(), "KUBERNETES_MASTER")
		})
	}
}

func TestConfigHasNoClientSideLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(path, []byte(`
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://127.0.0.1"}}]
contexts: [{name: a, context: {cluster: a}}]
current-context: a
`), 0o600))
	var flags cluster.ContextFlags
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.Add(set)
	require.NoError(t, set.Parse([]string{"--kubeconfig", path, "--request-timeout", "7s"}))

	cfg, err := flags.Config()

	require.NoError(t, err)
	assert.Negative(t, cfg.QPS, "client-go limits requests unless the value is negative")
	assert.Equal(t, 7*time.Second, cfg.Timeout)
}
