package cli_test

import (
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/test/clusterversions"
)

func accepting(names ...string) []configv1.AcceptRisk {
	var risks []configv1.AcceptRisk
	for _, name := range names {
		risks = append(risks, configv1.AcceptRisk{Name: name})
	}
	return risks
}

// accepts tests "cvo upgrade accept".
func (c *requestCluster) accepts(t *testing.T) {
	toUpdate := &configv1.Update{Version: "4.14.3", Image: clusterversions.Release("", "3").Image}
	const toUpdateToo = "Accept risks are kept beside the update"
	for _, test := range []struct {
		name   string
		update *configv1.Update
		args   []string
		out    string
		errs   string
		// spec is empty if no patch is sent. tries means that a dry run precedes the patch.
		spec  string
		tries bool
	}{
		{
			name: "accepts the first risks", args: []string{"SlowDisks,LostLeases"}, tries: true,
			out: "info: Accept risks are [LostLeases, SlowDisks]\n", spec: `{"desiredUpdate":{"acceptRisks":[{"name":"LostLeases"},{"name":"SlowDisks"}]}}`,
		},
		{
			name: "adds and withdraws risks", args: []string{" A , C-,Z,-D"}, update: &configv1.Update{Version: "4.14.3", AcceptRisks: accepting("Z", "C", "D", "B")},
			out: "info: Accept risks are [Z, B, A]\n", spec: `{"desiredUpdate":{"acceptRisks":[{"name":"Z"},{"name":"B"},{"name":"A"}]}}`,
			errs: "warning: No update known to the cluster has risk \"A\"\n",
		},
		{
			name: "replaces the accepted risks", args: []string{"--replace", "SlowDisks,B"}, update: &configv1.Update{Version: "4.14.3", AcceptRisks: accepting("A", "B")},
			out: "info: Accept risks are [B, SlowDisks]\n", spec: `{"desiredUpdate":{"acceptRisks":[{"name":"B"},{"name":"SlowDisks"}]}}`,
		},
		{
			name: "sends nothing if nothing changes", args: []string{"A,C-"}, update: &configv1.Update{Version: "4.14.3", AcceptRisks: accepting("A")},
			out: "info: Accept risks are not changed\n",
		},
		{name: "has nothing to clear", args: []string{"--clear"}, out: "info: Accept risks are not changed\n"},
		{
			name: "clears the risks and keeps the update", args: []string{"--clear"}, update: &configv1.Update{Version: "4.14.3", AcceptRisks: accepting("A")},
			out: "info: Accept risks are []\n", spec: `{"desiredUpdate":{"acceptRisks":null}}`,
		},
		{
			name: "leaves no empty update behind", args: []string{"A-"}, update: &configv1.Update{AcceptRisks: accepting("A")},
			out: "info: Accept risks are []\n", spec: `{"desiredUpdate":null}`,
		},
		{
			name: toUpdateToo, args: []string{"SlowDisks"}, update: toUpdate, tries: true,
			out: "info: Accept risks are [SlowDisks]\n", spec: `{"desiredUpdate":{"acceptRisks":[{"name":"SlowDisks"}]}}`,
		},
	} {
		t.Run("accept "+test.name, func(t *testing.T) {
			cv := clusterversions.WithUpdates(clusterversions.Resting())
			cv.Spec.DesiredUpdate = test.update
			c.put(t, cv)
			out, errs, code := c.cvo(t, append([]string{"accept"}, test.args...)...)
			assert.Equal(t, test.out, out)
			assert.Equal(t, test.errs, errs)
			assert.Zero(t, code)
			if test.spec == "" {
				assert.Empty(t, c.sent())
				return
			}
			patches := c.sent()
			if test.tries {
				require.Len(t, patches, 2)
				assert.Equal(t, "All", patches[0].DryRun)
				assert.Equal(t, patches[0].Body, patches[1].Body)
				patches = patches[1:]
			}
			require.Len(t, patches, 1)
			assert.Empty(t, patches[0].DryRun)
			assert.JSONEq(t, test.spec, patches[0].spec(t))
			if test.update != nil && test.update.Version != "" {
				require.NotNil(t, c.get(t).Spec.DesiredUpdate)
				assert.Equal(t, "4.14.3", c.get(t).Spec.DesiredUpdate.Version)
			}
		})
	}
	t.Run("accept rejects more risks than a cluster keeps", func(t *testing.T) {
		cv := clusterversions.Resting()
		cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.1"}
		for i := range 1000 {
			cv.Spec.DesiredUpdate.AcceptRisks = append(cv.Spec.DesiredUpdate.AcceptRisks, configv1.AcceptRisk{Name: "R" + strings.Repeat("x", i%200) + string(rune('a'+i/200))})
		}
		c.put(t, cv)
		_, errs, code := c.cvo(t, "accept", "one-more")
		assert.Equal(t, command.ExitRefused, code)
		assert.Contains(t, errs, "error: 1001 accepted risks would exceed the limit of 1000")
	})
	t.Run("accept completes risks after the typed ones", func(t *testing.T) {
		cv := clusterversions.WithUpdates(clusterversions.Resting())
		cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.3", AcceptRisks: accepting("SlowDisks")}
		c.put(t, cv)
		assert.Equal(t, []string{"X,LostLeases", "X,SlowDisks-"}, c.complete(t, "accept", "X,"))
		assert.Empty(t, c.complete(t, "accept", "--clear", ""))
	})
}

func TestUpgradeAcceptReportsAMissingField(t *testing.T) {
	c := newRequestCluster(t, "config/v1/zz_generated.crd-manifests/*_clusterversions-Default.crd.yaml")
	c.put(t, clusterversions.WithUpdates(clusterversions.Resting()))
	for _, args := range [][]string{{"accept", "SlowDisks"}, {"accept", "SlowDisks", "--dry-run"}} {
		out, errs, code := c.cvo(t, args...)
		assert.Empty(t, out)
		assert.Contains(t, errs, "error: unable to accept risks: the API server drops spec.desiredUpdate.acceptRisks")
		assert.Contains(t, errs, "ClusterUpdateAcceptRisks")
		assert.Equal(t, command.ExitFailed, code)
	}
	for _, patch := range c.sent() {
		assert.Equal(t, "All", patch.DryRun, "without the field, the request would leave the spec invalid")
	}
	assert.Nil(t, c.get(t).Spec.DesiredUpdate)

	out, _, code := c.cvo(t, "--to=4.14.3")
	assert.Equal(t, "Requested update to 4.14.3\n", out, "updates do not need the field")
	assert.Zero(t, code)
}

func TestUpgradeAcceptParsesItsArgument(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "no risks given"},
		{[]string{"A", "B"}, `unexpected argument "B": use 'cvo upgrade accept `},
		{[]string{""}, `illegal risk ""`},
		{[]string{"A,,B"}, `illegal risk ""`},
		{[]string{"A,-"}, `illegal risk "-"`},
		{[]string{"A,--"}, `illegal risk "--"`},
		{[]string{"A,A-"}, "both Risk and Risk-: A"},
		{[]string{"--replace", "A,B-"}, "which --replace does not allow"},
		{[]string{"--replace", "--clear"}, "--clear and --replace are mutually exclusive"},
		{[]string{"--clear", "A"}, "omit their names"},
		{[]string{strings.Repeat("x", 257)}, "more than 256 characters"},
		{[]string{"A", "--dry-run=maybe"}, "use none, server or client"},
		{[]string{"A", "-o", "xml"}, `unknown output "xml"`},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			out, errs, code := upgradeWith(t, "/nonexistent", append([]string{"accept"}, test.args...)...)
			assert.Empty(t, out)
			assert.Contains(t, errs, test.want)
			assert.Equal(t, command.ExitUsage, code)
		})
	}
}
