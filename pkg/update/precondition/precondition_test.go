package precondition_test

import (
	"os"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/precondition"
)

//threat:older-release-properly refuses an older release that the cluster never had
func TestRunRejectsUnsupportedVersionChanges(t *testing.T) {
	for _, tt := range []struct {
		name     string
		current  string
		history  []string
		target   string
		blocking []string
		warnings []string
	}{
		{name: "accepts a patch update", current: "4.22.9", target: "4.22.10"},
		{name: "accepts the next minor version", current: "4.22.9", target: "4.23.0"},
		{name: "accepts the same version", current: "4.22.9", target: "4.22.9"},
		{name: "refuses to skip a minor version", current: "4.21.0", target: "4.23.0", blocking: []string{"MultipleMinorVersionsUpdate"}},
		{name: "accepts 4 to 5.0", current: "4.23.0", target: "5.0.1"},
		{name: "refuses 4 to 5.1", current: "4.23.0", target: "5.1.0", blocking: []string{"MajorVersionUpdate"}},
		{name: "refuses 5 to 6", current: "5.3.0", target: "6.0.0", blocking: []string{"MajorVersionUpdate"}},
		{name: "refuses an older release that the cluster never had", current: "4.22.9", history: []string{"4.22.9", "4.22.7"}, target: "4.22.8", blocking: []string{"LowDesiredVersion"}},
		{name: "accepts a rollback to the previous patch", current: "4.22.9", history: []string{"4.22.9", "4.22.8"}, target: "4.22.8"},
		{name: "refuses a rollback across minor versions", current: "4.23.0", history: []string{"4.23.0", "4.22.9"}, target: "4.22.9", blocking: []string{"LowDesiredVersion"}},
		{name: "refuses a rollback without history", current: "4.23.0", history: []string{"4.23.0"}, target: "4.22.9", blocking: []string{"LowDesiredVersion"}},
		{name: "only warns if the cluster's version is unreadable", current: "banana", target: "4.22.9", warnings: []string{"InvalidCurrentVersion", "InvalidCurrentVersion"}},
		{name: "refuses an invalid target version", current: "4.22.9", target: "four", blocking: []string{"InvalidDesiredVersion"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cv := &configv1.ClusterVersion{}
			cv.Status.Desired.Version = tt.current
			cv.Status.AvailableUpdates = []configv1.Release{{Version: tt.target}}
			for _, v := range tt.history {
				cv.Status.History = append(cv.Status.History, configv1.UpdateHistory{Version: v})
			}
			objections := precondition.Run(precondition.All(), precondition.Input{ClusterVersion: cv, Target: release.Release{Version: tt.target}})
			var blocking, warnings []string
			for _, o := range objections {
				assert.NotEmpty(t, o.Check)
				assert.Contains(t, o.Doc, "/docs/user/preconditions.md#"+strings.ToLower(o.Check))
				assert.NotEmpty(t, o.Message)
				if o.Warning {
					warnings = append(warnings, o.Reason)
				} else {
					blocking = append(blocking, o.Reason)
				}
			}
			assert.Equal(t, tt.blocking, blocking)
			assert.Equal(t, tt.warnings, warnings)
			assert.Len(t, precondition.Blocking(objections), len(blocking))
		})
	}
}

// TestTextsMatchTheOriginalOperator compares texts that other tools read.
func TestTextsMatchTheOriginalOperator(t *testing.T) {
	entry := func(version, image string) configv1.UpdateHistory {
		return configv1.UpdateHistory{Version: version, Image: image}
	}
	for _, tt := range []struct {
		name, check, target string
		history             []configv1.UpdateHistory
		want                string
	}{
		{
			"an older release than the previous one", "ClusterVersionRollback", "1.0.0",
			[]configv1.UpdateHistory{entry("1.0.2", "example.com/r:1.0.2"), entry("1.0.1", "example.com/r:1.0.1"), entry("1.0.0", "example.com/r:1.0.0")},
			"LowDesiredVersion: 1.0.0 is less than the current target 1.0.2, and the only supported rollback is to the cluster's previous version 1.0.1 (example.com/r:1.0.1)",
		},
		{
			"an older release than the previous image of this version", "ClusterVersionRollback", "1.0.0",
			[]configv1.UpdateHistory{entry("1.0.1", "example.com/r:multi"), entry("1.0.1", "example.com/r:single"), entry("1.0.0", "example.com/r:1.0.0")},
			"LowDesiredVersion: 1.0.0 is less than the current target 1.0.1, and the only supported rollback is to the cluster's previous version 1.0.1 (example.com/r:single)",
		},
		{
			"a release of the major version after the next", "ClusterVersionGiantHop", "6.0.0",
			[]configv1.UpdateHistory{entry("4.22.0", "r")},
			"MajorVersionUpdate: 6.0.0 has a larger major version than the current target 4.22.0 (6 > 4), and only updates within the current major version are supported.",
		},
		{
			"a later release of the next major version", "ClusterVersionGiantHop", "5.1.0",
			[]configv1.UpdateHistory{entry("4.22.0", "r")},
			"MajorVersionUpdate: 5.1.0 has a larger major version than the current target 4.22.0 (5 > 4), and only updates within the current major version or to 5.0 are supported.",
		},
		{
			"another major version", "ClusterVersionGiantHop", "6.0.0",
			[]configv1.UpdateHistory{entry("5.0.0", "r")},
			"MajorVersionUpdate: 6.0.0 has a larger major version than the current target 5.0.0 (6 > 5), and only updates within the current major version are supported.",
		},
	} {
		t.Run("it rejects "+tt.name, func(t *testing.T) {
			cv := &configv1.ClusterVersion{}
			cv.Status.Desired = configv1.Release{Version: tt.history[0].Version, Image: tt.history[0].Image}
			cv.Status.History = tt.history
			assert.Equal(t, tt.want, said(checked(t, tt.check, precondition.Input{ClusterVersion: cv, Target: release.Release{Version: tt.target}})))
		})
	}
}

// TestRollbackPrefersTheLastCompletedRelease has an update that never completed between the current and the last completed release.
func TestRollbackPrefersTheLastCompletedRelease(t *testing.T) {
	entry := func(version string, state configv1.UpdateState) configv1.UpdateHistory {
		return configv1.UpdateHistory{Version: version, Image: "example.com/r:" + version, State: state}
	}
	cv := &configv1.ClusterVersion{}
	cv.Status.History = []configv1.UpdateHistory{
		entry("1.0.3", configv1.PartialUpdate), entry("1.0.2", configv1.PartialUpdate), entry("1.0.1", configv1.CompletedUpdate), entry("1.0.0", configv1.CompletedUpdate),
	}
	cv.Status.Desired = configv1.Release{Version: "1.0.3", Image: "example.com/r:1.0.3"}
	for target, want := range map[string]string{
		"1.0.2": "",
		"1.0.1": "",
		"1.0.0": "LowDesiredVersion: 1.0.0 is less than the current target 1.0.3, and the only supported rollback is to the cluster's previous version 1.0.1 (example.com/r:1.0.1)",
	} {
		assert.Equal(t, want, said(checked(t, "ClusterVersionRollback", precondition.Input{ClusterVersion: cv, Target: release.Release{Version: target}})), target)
	}
}

func TestErrorListsAllObjections(t *testing.T) {
	require.NoError(t, precondition.Error(nil))
	one := precondition.Objection{Check: "A", Reason: "B", Message: "c"}
	require.EqualError(t, precondition.Error([]precondition.Objection{one}), `Precondition "A" failed because of "B": c`)
	require.EqualError(t, precondition.Error([]precondition.Objection{one, one}),
		"Multiple precondition checks failed:\n* Precondition \"A\" failed because of \"B\": c\n* Precondition \"A\" failed because of \"B\": c")
}

// TestEveryCheckIsDocumented checks that the user documentation has every section that a check links to.
func TestEveryCheckIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/user/preconditions.md")
	require.NoError(t, err)
	for _, check := range precondition.All() {
		assert.Contains(t, string(page), "\n## "+check.Name+"\n")
	}
}

// checked returns the objection of one check.
func checked(t *testing.T, name string, in precondition.Input) *precondition.Objection {
	t.Helper()
	if in.ClusterVersion == nil {
		in.ClusterVersion = &configv1.ClusterVersion{}
	}
	for _, o := range precondition.Run(precondition.All(), in) {
		if o.Check == name {
			return &o
		}
	}
	return nil
}

// said returns an objection as "reason: message", with a * before a warning, or "" for none.
func said(o *precondition.Objection) string {
	if o == nil {
		return ""
	}
	text := o.Reason + ": " + o.Message
	if o.Warning {
		return "*" + text
	}
	return text
}

func TestRunNamesTheMissingVersion(t *testing.T) {
	for desired, message := range map[string]string{"": "the cluster has no version yet", "banana": "No Major.Minor.Patch elements found"} {
		cv := &configv1.ClusterVersion{}
		cv.Status.Desired.Version = desired
		objections := precondition.Run(precondition.Install(), precondition.Input{ClusterVersion: cv, Target: release.Release{Version: "4.22.9"}})
		if assert.Len(t, objections, 1, desired) {
			assert.Contains(t, objections[0].Message, message)
		}
	}
}
