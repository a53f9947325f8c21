package upgrade

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/update/request"
	"github.com/cluster-version/cvo/pkg/view/overview"
	"github.com/cluster-version/cvo/test/clusterversions"
)

// FuzzUpgradeOfAnyClusterVersion plans from any ClusterVersion and prints it, without a panic and without control sequences for a terminal.
//
//threat:clusterversion
func FuzzUpgradeOfAnyClusterVersion(f *testing.F) {
	for _, cv := range []*configv1.ClusterVersion{{}, clusterversions.Resting(), clusterversions.WithUpdates(clusterversions.Resting())} {
		data, err := json.Marshal(cv)
		require.NoError(f, err)
		f.Add(data, "4.14.3", clusterversions.Mirrored("3"))
	}
	f.Add([]byte(`{"spec":{"desiredUpdate":{"acceptRisks":[{"name":"\u001b"}]}},"status":{"history":[{"version":"0.0.0"}],"conditionalUpdates":[{"risks":[{}]}]}}`), "", "\x1b")
	f.Fuzz(func(t *testing.T, data []byte, to, toImage string) {
		cv := &configv1.ClusterVersion{}
		if json.Unmarshal(data, cv) != nil {
			return
		}
		before := cv.DeepCopy()
		var out, errs bytes.Buffer
		streams := command.Streams{Out: &out, Err: &errs}
		require.NoError(t, overview.New(cv).Print(&out, &errs, true))
		accept := &request.Risks{}
		if accept.Parse([]string{to}) != nil {
			accept.Clear = true
		}
		for _, plan := range []request.Plan{
			(&request.Update{Version: to}).Plan,
			(&request.Update{Version: to, AllowNotRecommended: true, AllowWithWarnings: true, Force: true}).Plan,
			(&request.Update{Image: toImage, AllowNotRecommended: true}).Plan,
			(&request.Update{Image: toImage, AllowExplicit: true}).Plan,
			(&request.Update{Latest: true, AllowNotRecommended: true}).Plan,
			(&request.Update{Force: true}).PlanMultiArch,
			request.Clear{}.Plan,
			request.Clear{Operator: toImage}.Plan,
			(&request.Channel{Name: to, AllowExplicit: true}).Plan,
			accept.Plan,
			(&request.Rollback{AllowWithWarnings: true}).Plan,
		} {
			r := &request.Request{}
			err := plan(cv, r)
			var refused *request.Refusal
			if err != nil {
				require.ErrorAs(t, err, &refused)
				assert.Nil(t, r.SpecPatch, "rejected requests are not sent")
			} else {
				stored := cv.DeepCopy()
				if r.Spec != nil {
					stored.Spec = *r.Spec
				}
				require.NoError(t, r.Check(stored))
				assert.NotEmpty(t, r.Message)
			}
			command.PrintError(&errs, refusedRequest(err))
			require.NoError(t, (&requestFlags{dryRun: request.DryRunClient}).print(streams, r))
		}
		assert.Equal(t, before, cv, "planning changes nothing")
		control := func(r rune) bool { return r != '\n' && r != '\t' && unicode.IsControl(r) }
		assert.Equal(t, -1, strings.IndexFunc(out.String()+errs.String(), control))
	})
}
