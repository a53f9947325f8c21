package precondition_test

import (
	"os"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/precondition"
	"github.com/cluster-version/cvo/pkg/release"
)

func TestRun(t *testing.T) {
	for _, tt := range []struct {
		name     string
		current  string
		history  []string
		target   string
		blocking []string
		warnings []string
	}{
		{name: "lets a patch update pass", current: "4.22.9", target: "4.22.10"},
		{name: "lets the next minor version pass", current: "4.22.9", target: "4.23.0"},
		{name: "lets the same version pass", current: "4.22.9", target: "4.22.9"},
		{name: "refuses to skip a minor version", current: "4.21.0", target: "4.23.0", blocking: []string{"MultipleMinorVersionsUpdate"}},
		{name: "lets 4 to 5.0 pass", current: "4.23.0", target: "5.0.1"},
		{name: "refuses 4 to 5.1", current: "4.23.0", target: "5.1.0", blocking: []string{"MajorVersionUpdate"}},
		{name: "refuses 5 to 6", current: "5.3.0", target: "6.0.0", blocking: []string{"MajorVersionUpdate"}},
		{name: "refuses an older release that the cluster never had", current: "4.22.9", history: []string{"4.22.9", "4.22.7"}, target: "4.22.8", blocking: []string{"LowDesiredVersion"}},
		{name: "lets the way back to the previous patch pass", current: "4.22.9", history: []string{"4.22.9", "4.22.8"}, target: "4.22.8"},
		{name: "refuses the way back across minor versions", current: "4.23.0", history: []string{"4.23.0", "4.22.9"}, target: "4.22.9", blocking: []string{"LowDesiredVersion"}},
		{name: "refuses a rollback without history", current: "4.23.0", history: []string{"4.23.0"}, target: "4.22.9", blocking: []string{"LowDesiredVersion"}},
		{name: "only warns if the cluster's version is unreadable", current: "banana", target: "4.22.9", warnings: []string{"InvalidCurrentVersion", "InvalidCurrentVersion"}},
		{name: "refuses a target that is no version", current: "4.22.9", target: "four", blocking: []string{"InvalidDesiredVersion"}},
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

func TestError(t *testing.T) {
	require.NoError(t, precondition.Error(nil))
	one := precondition.Objection{Check: "A", Reason: "B", Message: "c"}
	require.EqualError(t, precondition.Error([]precondition.Objection{one}), `Precondition "A" failed because of "B": c`)
	require.EqualError(t, precondition.Error([]precondition.Objection{one, one}),
		"Multiple precondition checks failed:\n* Precondition \"A\" failed because of \"B\": c\n* Precondition \"A\" failed because of \"B\": c")
}

// TestEveryCheckIsDocumented checks that the page for users has the section that each check leads to.
func TestEveryCheckIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/user/preconditions.md")
	require.NoError(t, err)
	for _, check := range precondition.All() {
		assert.Contains(t, string(page), "\n## "+check.Name+"\n")
	}
}

// checked is what one check objects to.
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

// said is an objection as "reason: message", with a * before what is a warning, "" for none.
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
