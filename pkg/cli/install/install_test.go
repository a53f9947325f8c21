package install

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/test/fixture"
)

func TestInstallExitCodeReportsTheOutcome(t *testing.T) {
	over, cancel := context.WithCancelCause(t.Context())
	cancel(command.ErrTimeout)
	o := &options{wait: waitDeployed, timeout: time.Minute}
	streams := command.Streams{Out: io.Discard, Err: io.Discard}
	waiting := installReport{Message: "0 of 2 replicas"}
	assert.Equal(t, command.ExitUpdating, command.ExitCode(o.finish(over, streams, waiting, context.Canceled)))
	waiting.Troubles = []string{"Pod a: no node accepts it"}
	err := o.finish(over, streams, waiting, context.Canceled)
	assert.Equal(t, command.ExitAttention, command.ExitCode(err))
	assert.EqualError(t, err, "not deployed within 1m0s: 0 of 2 replicas; Pod a: no node accepts it")
}

// TestInstallWarnsAboutASharedSigner uses a trust file in which two members of a threshold share a key.
func TestInstallWarnsAboutASharedSigner(t *testing.T) {
	signer, err := fixture.NewKeySigner()
	require.NoError(t, err)
	key, err := signer.PublicKey()
	require.NoError(t, err)
	data, err := json.Marshal(policy.Document{APIVersion: policy.APIVersion, Kind: policy.Kind, Spec: policy.Spec{
		Sigstore:   &policy.SigstoreTrust{PublicKeys: []policy.TrustedPublicKey{{Name: "a", PEM: string(key)}, {Name: "b", PEM: string(key)}}},
		Thresholds: []policy.TrustedThreshold{{Name: "two", Required: 2, Members: []string{"a", "b"}}},
	}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "trust.yaml")
	require.NoError(t, os.WriteFile(file, data, 0o600))
	var errs bytes.Buffer
	(&options{trust: file, quiet: true}).warn(command.Streams{Err: &errs})
	assert.Contains(t, errs.String(), `warning: threshold "two": members "a" and "b" share key `)
}

func TestTimeoutOfUninstallExcludesTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &uninstallOptions{timeout: time.Minute}
		streams := command.Streams{Err: io.Discard}
		require.NoError(t, o.limited(t.Context(), streams, func(context.Context) error {
			time.Sleep(40 * time.Second)
			return nil
		}))
		time.Sleep(time.Hour) // the user answers
		begun := time.Now()
		err := o.limited(t.Context(), streams, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		assert.Equal(t, command.ExitUpdating, command.ExitCode(err))
		assert.Equal(t, 20*time.Second, time.Since(begun))
	})
}

func TestInterruptedUninstallPrintsTheCommandToContinue(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		args       []string
	}{
		{"omits defaults", "cvo uninstall", nil},
		{
			"repeats the cluster and the scope",
			"cvo uninstall --as-group a --as-group b --context 'my cluster' --delete-data --force --name other --namespace cvo --with-platform",
			[]string{"--as-group=a", "--as-group=b", "--context=my cluster", "-n", "cvo", "--name=other", "--with-platform", "--delete-data", "--force"},
		},
		{"omits the output, limits of time and defaults", "cvo uninstall", []string{"--yes", "-q", "-o", "json", "--timeout=1m", "--force=false", "--request-timeout=1s"}},
		{
			"repeats given defaults, because the environment may differ",
			"cvo uninstall --name version --namespace openshift-cluster-version",
			[]string{"--name", api.ClusterVersionName, "--namespace", api.OperatorNamespace},
		},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			cmd := NewUninstall(command.Streams{})
			require.NoError(t, cmd.ParseFlags(tt.args))
			assert.Equal(t, tt.want, again(cmd.Flags()))
		})
	}
}
