package cli_test

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/test/clusterversions"
)

// settings tests "cvo upgrade channel".
func (c *requestCluster) settings(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*configv1.ClusterVersion)
		args   []string
		out    string
		errs   string
		spec   string
		code   int
	}{
		{name: "sets a channel", args: []string{"fast-4.14"}, out: "info: Cluster is in fast-4.14 (was stable-4.14)\n", spec: `{"channel":"fast-4.14"}`},
		{name: "keeps the current channel", args: []string{"stable-4.14"}, out: "info: Cluster is already in stable-4.14 (no change)\n"},
		{
			name: "keeps an empty channel", out: "info: Cluster channel is already clear (no change)\n",
			change: func(cv *configv1.ClusterVersion) { cv.Spec.Channel = "" },
		},
		{
			name: "sets the first channel", args: []string{"fast-4.14"}, out: "info: Cluster is in fast-4.14\n", spec: `{"channel":"fast-4.14"}`,
			change: func(cv *configv1.ClusterVersion) { cv.Spec.Channel = "" },
		},
		{
			name: "rejects an unlisted channel", args: []string{"fats-4.14"}, code: command.ExitRefused,
			errs: "error: the requested channel \"fats-4.14\" is not one of the available channels (candidate-4.14, fast-4.14, stable-4.14), " +
				"you must pass --allow-explicit-channel to continue\n",
		},
		{
			name: "sets an unlisted channel if allowed", args: []string{"own", "--allow-explicit-channel"}, out: "info: Cluster is in own (was stable-4.14)\n", spec: `{"channel":"own"}`,
			errs: "warning: The requested channel \"own\" is not one of the available channels (candidate-4.14, fast-4.14, stable-4.14). " +
				"You have used --allow-explicit-channel to proceed anyway. Setting the update channel to \"own\".\n",
		},
		{
			name: "sets any channel if none are listed", args: []string{"own"}, out: "info: Cluster is in own (was stable-4.14)\n", spec: `{"channel":"own"}`,
			change: func(cv *configv1.ClusterVersion) { cv.Status = configv1.ClusterVersionStatus{} },
			errs:   "warning: No channels known to be compatible with the current version \"\"; unable to validate \"own\". Setting the update channel to \"own\" anyway.\n",
		},
		{
			name: "does not clear a listed channel", code: command.ExitRefused,
			errs: "error: You are requesting to clear the update channel. The current channel \"stable-4.14\" is one of the available channels, " +
				"you must pass --allow-explicit-channel to continue\n",
		},
		{
			name: "clears a listed channel if allowed", args: []string{"--allow-explicit-channel"}, out: "info: Cluster channel is clear (was stable-4.14)\n", spec: `{"channel":""}`,
			errs: "warning: Clearing channel \"stable-4.14\"; cluster will no longer request available update recommendations.\n",
		},
		{
			name: "clears an unlisted channel", out: "info: Cluster channel is clear (was own)\n", spec: `{"channel":""}`,
			change: func(cv *configv1.ClusterVersion) { cv.Spec.Channel = "own" },
			errs:   "warning: Clearing channel \"own\"; cluster will no longer request available update recommendations.\n",
		},
		{name: "accepts only one channel", args: []string{"a", "b"}, code: command.ExitUsage, errs: "error: unexpected argument \"b\": use 'cvo upgrade channel [CHANNEL] [flags]'\n"},
	} {
		t.Run("channel "+test.name, func(t *testing.T) {
			cv := clusterversions.Resting()
			if test.change != nil {
				test.change(cv)
			}
			c.put(t, cv)
			out, errs, code := c.cvo(t, append([]string{"channel"}, test.args...)...)
			assert.Equal(t, test.out, out)
			assert.Equal(t, test.errs, errs)
			assert.Equal(t, test.code, code)
			if test.spec == "" {
				assert.Empty(t, c.sent())
				return
			}
			require.Len(t, c.sent(), 1)
			assert.JSONEq(t, test.spec, c.sent()[0].spec(t))
		})
	}
	t.Run("channel supports --dry-run", func(t *testing.T) {
		c.put(t, clusterversions.Resting())
		out, _, code := c.cvo(t, "channel", "fast-4.14", "--dry-run")
		assert.Zero(t, code)
		assert.Contains(t, out, "info: Cluster is in fast-4.14 (was stable-4.14) (server dry run)\nMerge patch: {")
		assert.Equal(t, "stable-4.14", c.get(t).Spec.Channel)
	})
	t.Run("channel offers channels", func(t *testing.T) {
		assert.Equal(t, []string{"candidate-4.14", "fast-4.14", "stable-4.14"}, c.complete(t, "channel", ""))
	})
}
