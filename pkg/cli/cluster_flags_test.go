package cli_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
)

// TestClusterFlagsSelectClusterAndUser runs a command that first reads a Lease.
func TestClusterFlagsSelectClusterAndUser(t *testing.T) {
	e := withoutPlatform.For(t)
	(&updatingCluster{T: t, config: e.Config("tests")}).crds("config/v1/zz_generated.crd-manifests/*_clusterversions-Default.crd.yaml")
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"reads as the user of the kubeconfig", nil, "this cluster has no ClusterVersion"},
		{"impersonates a user", []string{"--as", "jane"}, `User "jane" cannot get resource "leases"`},
		{"impersonates the groups of a user", []string{"--as", "jane", "--as-group", "a", "--as-group", "system:masters"}, "this cluster has no ClusterVersion"},
		{"rejects groups without a user", []string{"--as-group", "system:masters"}, "without impersonating a user"},
		{"rejects a cluster that the kubeconfig lacks", []string{"--cluster", "nosuch"}, `cluster "nosuch" does not exist`},
		{"rejects a user that the kubeconfig lacks", []string{"--user", "nosuch"}, `auth info "nosuch" does not exist`},
		{"limits the duration of a request", []string{"--request-timeout", "1ns"}, "deadline exceeded"},
		{"rejects a duration with an unknown unit", []string{"--request-timeout", "1x"}, `--request-timeout "1x" is not a duration`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{}})
			cmd.SetArgs(append([]string{"status", "--kubeconfig", e.Kubeconfig}, tt.args...))
			require.ErrorContains(t, cmd.ExecuteContext(t.Context()), tt.want)
		})
	}
}
