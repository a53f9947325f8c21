package recommend_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/update/firing"
	"github.com/cluster-version/cvo/pkg/view/recommend"
)

func is(kind configv1.ClusterStatusConditionType, status configv1.ConditionStatus, reason, message string) configv1.ClusterOperatorStatusCondition {
	return configv1.ClusterOperatorStatusCondition{Type: kind, Status: status, Reason: reason, Message: message}
}

// cluster returns a healthy cluster with these updates. An update with a plus in its version has an issue.
func cluster(versions ...string) *configv1.ClusterVersion {
	cv := &configv1.ClusterVersion{}
	cv.Spec.Channel = "stable-1"
	cv.Status.Desired = configv1.Release{Version: "1.1.0", Image: "registry.example/release@sha256:10"}
	cv.Status.Conditions = []configv1.ClusterOperatorStatusCondition{
		is("Failing", configv1.ConditionFalse, "AsExpected", ""), is(configv1.OperatorProgressing, configv1.ConditionFalse, "", "Cluster version is 1.1.0"),
	}
	for _, version := range versions {
		version, risky := strings.CutSuffix(version, "+")
		release := configv1.Release{Version: version, Image: "registry.example/release@" + version, URL: configv1.URL("https://example.com/" + version)}
		if risky {
			cv.Status.ConditionalUpdates = append(cv.Status.ConditionalUpdates, conditional(release, "False", "Fire", "It burns.\nHot.", "Fire"))
			continue
		}
		cv.Status.AvailableUpdates = append(cv.Status.AvailableUpdates, release)
	}
	return cv
}

func conditional(release configv1.Release, recommended metav1.ConditionStatus, reason, message string, risks ...string) configv1.ConditionalUpdate {
	update := configv1.ConditionalUpdate{Release: release, Conditions: []metav1.Condition{{Type: "Recommended", Status: recommended, Reason: reason, Message: message}}}
	for _, risk := range risks {
		update.Risks = append(update.Risks, configv1.ConditionalUpdateRisk{Name: risk, URL: "https://example.com/" + risk, Message: risk + " may happen."})
	}
	return update
}

func text(t *testing.T, in recommend.Input, all bool) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, recommend.Assess(in).Text(&out, all))
	return out.String()
}

// choose returns the text for one version and the names of its issues.
func choose(t *testing.T, in recommend.Input, version string) (out string, accepted, unaccepted []string) {
	t.Helper()
	a := recommend.Assess(in)
	update, err := a.Choose(semver.MustParse(version))
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, a.UpdateText(&text, update))
	accepted, unaccepted = a.Issues(update)
	return text.String(), accepted, unaccepted
}

// quiet is the text about alerts if none fires.
const quiet = "The following conditions found no cause for concern in updating this cluster to later releases: recommended/CriticalAlerts (AsExpected), " +
	"recommended/NodeAlerts (AsExpected), recommended/PodDisruptionBudgetAlerts (AsExpected), recommended/PodImagePullAlerts (AsExpected), " +
	"recommended/UpdatePrecheckAlerts (AsExpected)\n\n"

const channel = "Upstream update service is unset, so the cluster will use an appropriate default.\nChannel: stable-1\n"

func TestUpdatesAreListedByMinorVersion(t *testing.T) {
	row := func(version string) string {
		return "  " + version + strings.Repeat(" ", 12-len(version)) + "no known issues relevant to this cluster\n"
	}
	const header = "  VERSION     ISSUES\n"
	paragraph := func(version string) string {
		return "\n  Version: " + version + "\n  Image: registry.example/release@" + version + "\n  Reason: Fire\n  Message: It burns.\n  Hot.\n"
	}
	older := func(n, minor string) string {
		return "And " + n + " older " + minor + " updates you can see with '--show-outdated-releases' or '--version VERSION'.\n"
	}
	for _, tt := range []struct {
		name     string
		versions []string
		all      bool
		want     string
	}{
		{"it has no updates", nil, false, "No updates available. You may still upgrade to a specific release image with --to-image or wait for new updates to be available.\n"},
		{"it sorts by version", []string{"1.1.2", "1.1.10"}, false, "\nUpdates to 1.1:\n" + header + row("1.1.10") + row("1.1.2")},
		{"it prints newer minor and major versions first", []string{"1.1.2", "2.0.0", "1.10.0", "1.9.0"}, false, "\nUpdates to 2.0:\n" + header + row("2.0.0") +
			"\nUpdates to 1.10:\n" + header + row("1.10.0") + "\nUpdates to 1.9:\n" + header + row("1.9.0") + "\nUpdates to 1.1:\n" + header + row("1.1.2")},
		{"it counts older updates", []string{"1.1.1", "1.1.2", "1.1.3", "1.1.4"}, false, "\nUpdates to 1.1:\n" + header + row("1.1.4") + row("1.1.3") + older("2", "1.1")},
		{"it explains updates that are not recommended", []string{"1.1.3+"}, false, "\nUpdates to 1.1:\n" + paragraph("1.1.3")},
		{"it prints a table after a paragraph", []string{"1.1.3+", "1.1.2"}, false, "\nUpdates to 1.1:\n" + paragraph("1.1.3") + "\n" + header + row("1.1.2")},
		{"it prints a paragraph after a table", []string{"1.1.3", "1.1.2+", "1.1.1"}, false, "\nUpdates to 1.1:\n" + header + row("1.1.3") + paragraph("1.1.2") + "\n" + older("1", "1.1")},
		{"it prints an empty line before older updates that are not recommended", []string{"1.1.3", "1.1.2", "1.1.1+"}, false, "\nUpdates to 1.1:\n" + header + row("1.1.3") + row("1.1.2") + "\n" + older("1", "1.1")},
		{"it lists all updates with their reasons", []string{"1.1.3+", "1.1.2", "1.1.1+"}, true, "\nUpdates to 1.1:\n" + header + "  1.1.3       Fire\n" + row("1.1.2") + "  1.1.1       Fire\n"},
		{"it aligns long versions row by row", []string{"1.1.2-rc.1234567890", "1.1.1"}, false, "\nUpdates to 1.1:\n  VERSION             ISSUES\n  1.1.2-rc.1234567890 no known issues relevant to this cluster\n" + row("1.1.1")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, quiet+channel+tt.want, text(t, recommend.Input{ClusterVersion: cluster(tt.versions...)}, tt.all))
		})
	}
}

func TestClusterFindingsAreListed(t *testing.T) {
	with := func(conditions ...configv1.ClusterOperatorStatusCondition) *configv1.ClusterVersion {
		cv := cluster("1.1.1")
		cv.Status.Conditions = conditions
		return cv
	}
	fine := is("Failing", configv1.ConditionFalse, "", "")
	for _, tt := range []struct {
		name   string
		cv     *configv1.ClusterVersion
		accept []string
		want   string
		notes  []string
		issues []string
	}{
		{name: "it shows a failure", cv: with(is("Failing", configv1.ConditionTrue, "Broken", "One.\nTwo.")), want: "Failing=True:\n\n  Reason: Broken\n  Message: One.\n  Two.\n\n", issues: []string{"Failing"}},
		{name: "it marks an accepted failure", cv: with(is("Failing", configv1.ConditionUnknown, "Slow", "Wait.")), accept: []string{"Failing"}, want: "accepted Failing=Unknown:\n\n  Reason: Slow\n  Message: Wait.\n\n"},
		{
			name: "it notes a missing condition", cv: with(), issues: []string{"Failing"},
			notes: []string{"warning: No current Failing info, see `oc describe clusterversion` for more details."},
		},
		{
			name: "it notes an accepted missing condition", cv: with(), accept: []string{"Failing"},
			notes: []string{"accepted warning: No current Failing info, see `oc describe clusterversion` for more details."},
		},
		{
			name: "it shows a running update", cv: with(fine, is(configv1.OperatorProgressing, configv1.ConditionTrue, "", "Working\ntowards")), issues: []string{"Progressing"},
			want: "info: An update is in progress.  You may wish to let this update complete before requesting a new update.\n  Working\n  towards\n\n",
		},
		{
			name: "it marks an accepted running update", cv: with(fine, is(configv1.OperatorProgressing, configv1.ConditionTrue, "", "Working")), accept: []string{"Progressing"},
			want: "accepted info: An update is in progress.  You may wish to let this update complete before requesting a new update.\n  Working\n\n",
		},
		{name: "it ignores a running update without a message", cv: with(fine, is(configv1.OperatorProgressing, configv1.ConditionTrue, "", ""))},
		{
			name: "it notes that updates may be outdated", cv: with(fine, is(configv1.RetrievedUpdates, configv1.ConditionFalse, "Remote", "Gone.\nFar.")), issues: []string{"CannotRetrieveUpdates"},
			notes: []string{"warning: Cannot refresh available updates:\n  Reason: Remote\n  Message: Gone.\n  Far.\n"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := recommend.Input{ClusterVersion: tt.cv, Accept: tt.accept}
			assert.Equal(t, tt.want+quiet+channel+"\nUpdates to 1.1:\n  VERSION     ISSUES\n  1.1.1       no known issues relevant to this cluster\n", text(t, in, false))
			assert.Equal(t, tt.notes, recommend.Assess(in).Notes())
			_, accepted, unaccepted := choose(t, in, "1.1.1")
			assert.ElementsMatch(t, tt.issues, unaccepted)
			assert.ElementsMatch(t, tt.accept, accepted)
		})
	}
}

func TestChannelAndServiceArePrinted(t *testing.T) {
	cv := cluster()
	cv.Spec.Upstream, cv.Status.Desired.Channels = "https://example.com/graph", []string{"fast-1", "stable-1"}
	assert.Contains(t, text(t, recommend.Input{ClusterVersion: cv}, false), "Upstream update service: https://example.com/graph\nChannel: stable-1 (available channels: fast-1, stable-1)\n")
	cv.Spec.Channel = ""
	assert.NotContains(t, text(t, recommend.Input{ClusterVersion: cv}, false), "pstream")
}

func alert(name, severity, state string, labels, annotations map[string]string) firing.Alert {
	all := map[string]string{"alertname": name, "severity": severity}
	maps.Copy(all, labels)
	return firing.Alert{Labels: all, Annotations: annotations, State: state}
}

func TestAlertsBecomeFindings(t *testing.T) {
	budget := map[string]string{"namespace": "shop", "poddisruptionbudget": "till"}
	full := map[string]string{"summary": "It is so", "description": "Long.", "message": "Longer.", "runbook_url": "https://example.com/book"}
	const noBook = "<alert does not have a runbook_url annotation>"
	for _, tt := range []struct {
		name    string
		alert   firing.Alert
		kind    string
		message string
		// quieted are the groups that must not be reported as quiet.
		quieted []string
	}{
		{"it lists critical alerts first", alert("KubeNodeNotReady", "critical", "firing", nil, full), "CriticalAlerts/KubeNodeNotReady/0", "critical alert KubeNodeNotReady firing, suggesting significant cluster issues worth investigating. It is so. The alert description is: Long. | Longer. https://example.com/book", []string{"CriticalAlerts"}},
		{"it names the exceeded budget", alert("PodDisruptionBudgetLimit", "critical", "firing", budget, nil), "CriticalAlerts/PodDisruptionBudgetLimit/0", "critical alert PodDisruptionBudgetLimit firing, suggesting significant cluster issues worth investigating. Namespace=shop, PodDisruptionBudget=till. PodDisruptionBudgetLimit. The alert has no description. " + noBook, []string{"CriticalAlerts", "PodDisruptionBudgetAlerts"}},
		{"it names the budget at its limit", alert("PodDisruptionBudgetAtLimit", "warning", "firing", budget, map[string]string{"summary": "Full.", "message": "M"}), "PodDisruptionBudgetAlerts/PodDisruptionBudgetAtLimit/0", "warning alert PodDisruptionBudgetAtLimit firing, which might slow node drains. Namespace=shop, PodDisruptionBudget=till. Full. The alert description is: M " + noBook, []string{"PodDisruptionBudgetAlerts"}},
		{"it recognizes images that are not pulled", alert("KubeContainerWaiting", "warning", "firing", nil, nil), "PodImagePullAlerts/KubeContainerWaiting/0", "warning alert KubeContainerWaiting firing, which may slow workload redistribution during rolling node updates. KubeContainerWaiting. The alert has no description. " + noBook, []string{"PodImagePullAlerts"}},
		{"it recognizes nodes", alert("KubeletHealthState", "warning", "firing", nil, nil), "NodeAlerts/KubeletHealthState/0", "warning alert KubeletHealthState firing, which may slow workload redistribution during rolling node updates. KubeletHealthState. The alert has no description. " + noBook, []string{"NodeAlerts"}},
		{"it recognizes alerts marked for the precheck", alert("Mine", "info", "firing", map[string]string{"openShiftUpdatePrecheck": "true"}, nil), "UpdatePrecheckAlerts/Mine/0", "info alert Mine firing, suggesting issues worth investigating before updating the cluster. Mine. The alert has no description. " + noBook, []string{"UpdatePrecheckAlerts"}},
		{"it recognizes virtual machines", alert("VMCannotBeEvicted", "warning", "firing", nil, nil), "VirtAlerts/VMCannotBeEvicted/0", "warning alert VMCannotBeEvicted firing, which may slow workload redistribution during rolling node updates. VMCannotBeEvicted. The alert has no description. " + noBook, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cv := cluster("1.1.1")
			noise := []firing.Alert{alert("Watchdog", "none", "firing", nil, nil), alert("KubeNodeUnreachable", "critical", "pending", nil, nil), {State: "firing"}}
			in := recommend.Input{ClusterVersion: cv, Alerts: append(noise, tt.alert)}
			out := text(t, in, false)
			assert.Contains(t, out, "The following conditions found cause for concern in updating this cluster to later releases: recommended/"+tt.kind+"\n\nrecommended/"+tt.kind+
				"=False:\n\n  Reason: Alert:firing\n  Message: "+tt.message+"\n\n"+channel)
			for _, class := range []string{"CriticalAlerts", "PodDisruptionBudgetAlerts", "PodImagePullAlerts", "NodeAlerts", "UpdatePrecheckAlerts"} {
				assert.Equal(t, !slices.Contains(tt.quieted, class), strings.Contains(out, "recommended/"+class+" (AsExpected)"), class)
			}
			_, _, unaccepted := choose(t, in, "1.1.1")
			assert.Equal(t, []string{tt.alert.Labels["alertname"]}, unaccepted)

			in.Accept = unaccepted
			out, accepted, unaccepted := choose(t, in, "1.1.1")
			assert.Empty(t, unaccepted)
			assert.Equal(t, in.Accept, accepted)
			assert.Contains(t, out, "found cause for concern in updating this cluster to later releases, but were explicitly accepted via --accept: recommended/"+tt.kind+"\n\n"+channel)
			assert.Contains(t, out, "\nUpdate to 1.1.1 has no known issues relevant to this cluster.\nImage: registry.example/release@1.1.1\nRelease URL: https://example.com/1.1.1\n"+
				"Update to 1.1.1 has no known issues relevant to this cluster other than the accepted "+accepted[0]+".\n")
		})
	}
}

func TestAlertsAreCountedAndExplainedTogether(t *testing.T) {
	in := recommend.Input{ClusterVersion: cluster("1.1.1"), Accept: []string{"KubeNodeNotReady"}, Alerts: []firing.Alert{
		alert("KubeNodeNotReady", "warning", "firing", nil, nil), alert("Watchdog", "none", "firing", nil, nil), alert("KubeContainerWaiting", "warning", "firing", nil, nil),
	}}
	out := text(t, in, false)
	assert.Contains(t, out, "accepted via --accept: recommended/NodeAlerts/KubeNodeNotReady/0\n\nThe following conditions found cause for concern in updating this cluster to later releases: recommended/PodImagePullAlerts/KubeContainerWaiting/1\n\n")
	assert.Contains(t, out, "recommended/NodeAlerts/KubeNodeNotReady/0=False:", "an accepted finding is explained next to an unaccepted one")
}

func TestUnreadableAlertsAreAFinding(t *testing.T) {
	in := recommend.Input{ClusterVersion: cluster("1.1.1"), PrecheckError: errors.New("no route")}
	out, _, unaccepted := choose(t, in, "1.1.1")
	assert.True(t, strings.HasPrefix(out, "Failed to check for at least some preconditions: no route\n"+channel), out)
	assert.Equal(t, []string{"FailedToCompletePrecheck"}, unaccepted)

	in = recommend.Input{ClusterVersion: cluster("1.1.1"), AlertsUnknown: &recommend.Finding{Type: "recommended/Alert", Status: "Unknown", Reason: "None", Message: "Why.", Name: "AlertNone"}}
	out, _, unaccepted = choose(t, in, "1.1.1")
	assert.True(t, strings.HasPrefix(out, "The following conditions found cause for concern in updating this cluster to later releases: recommended/Alert\n\nrecommended/Alert=Unknown:\n\n  Reason: None\n  Message: Why.\n\n"+channel), out)
	assert.Equal(t, []string{"AlertNone"}, unaccepted)
}

func TestChooseRejectsUnavailableVersions(t *testing.T) {
	a := recommend.Assess(recommend.Input{ClusterVersion: cluster("1.1.1", "1.1.2")})
	none := recommend.Assess(recommend.Input{ClusterVersion: cluster()})
	for _, tt := range []struct {
		from          *recommend.Assessment
		version, want string
	}{
		{none, "1.1.1", "no updates available, so cannot display context for the requested release 1.1.1"},
		{a, "2.0.0", "no updates to 2 available, so cannot display context for the requested release 2.0.0"},
		{a, "1.2.0", "no updates to 1.2 available, so cannot display context for the requested release 1.2.0"},
		{a, "1.1.3", "no update to 1.1.3 available, so cannot display context for the requested release"},
	} {
		_, err := tt.from.Choose(semver.MustParse(tt.version))
		assert.EqualError(t, err, tt.want)
	}
}

func TestUpdateRisksAreListed(t *testing.T) {
	out, _, unaccepted := choose(t, recommend.Input{ClusterVersion: cluster("1.1.1+")}, "1.1.1")
	assert.Contains(t, out, "\nUpdate to 1.1.1 Recommended=False:\nImage: registry.example/release@1.1.1\nRelease URL: https://example.com/1.1.1\nReason: Fire\nMessage: It burns.\n  Hot.\n")
	assert.Equal(t, []string{"ConditionalUpdateRisk"}, unaccepted)

	out, accepted, unaccepted := choose(t, recommend.Input{ClusterVersion: cluster("1.1.1+"), Accept: []string{"ConditionalUpdateRisk"}}, "1.1.1")
	assert.Contains(t, out, "\nReason: accepted Fire via ConditionalUpdateRisk\n")
	assert.Contains(t, out, "other than the accepted ConditionalUpdateRisk.\n")
	assert.Empty(t, unaccepted)
	assert.Equal(t, []string{"ConditionalUpdateRisk"}, accepted)

	cv := cluster("1.1.1+")
	cv.Status.ConditionalUpdates[0].Conditions = nil
	cv.Status.ConditionalUpdates[0].Risks = append(cv.Status.ConditionalUpdates[0].Risks, configv1.ConditionalUpdateRisk{Name: "Air"})
	out, _, _ = choose(t, recommend.Input{ClusterVersion: cv}, "1.1.1")
	assert.Contains(t, out, "Recommended=Unknown:\n")
	assert.Contains(t, out, "\nReason: NoConditions\nMessage: Conditional update to 1.1.1 has risks (, , Air, Fire), but no conditions.\n")

	cv = cluster("1.1.1")
	cv.Status.ConditionalUpdates = []configv1.ConditionalUpdate{conditional(cv.Status.AvailableUpdates[0], "True", "AsExpected", "", "Fire")}
	assert.Len(t, recommend.Assess(recommend.Input{ClusterVersion: cv}).Updates, 1, "an update in both lists is listed once")
	_, _, unaccepted = choose(t, recommend.Input{ClusterVersion: cv}, "1.1.1")
	assert.Empty(t, unaccepted)
}

func TestRisksAreAcceptedByName(t *testing.T) {
	newer := cluster("1.1.1+")
	newer.Status.ConditionalUpdates[0] = conditional(newer.Status.ConditionalUpdates[0].Release, "False", "MultipleReasons", "Two.", "Fire", "Flood", "Wind")
	newer.Status.ConditionalUpdates[0].RiskNames = []string{"Fire", "Flood", "Wind"}
	for name, applies := range map[string]metav1.ConditionStatus{"Fire": "True", "Flood": "Unknown", "Wind": "False"} {
		newer.Status.ConditionalUpdateRisks = append(newer.Status.ConditionalUpdateRisks, configv1.ConditionalUpdateRisk{Name: name, Conditions: []metav1.Condition{{Type: "Applies", Status: applies}}})
	}
	bySpec := newer.DeepCopy()
	bySpec.Spec.DesiredUpdate = &configv1.Update{AcceptRisks: []configv1.AcceptRisk{{Name: "Flood"}}}
	older := cluster("1.1.1+")
	older.Status.ConditionalUpdates[0].Risks = append(older.Status.ConditionalUpdates[0].Risks, configv1.ConditionalUpdateRisk{Name: "Flood"})
	for _, tt := range []struct {
		name                 string
		cv                   *configv1.ClusterVersion
		accept               []string
		accepted, unaccepted []string
		reason               string
	}{
		{"it reports one name for all risks", newer, nil, nil, []string{"ConditionalUpdateRisk"}, "MultipleReasons"},
		{"it lists the unaccepted risks", newer, []string{"Fire"}, []string{"Fire"}, []string{"Flood"}, "MultipleReasons"},
		{"it accepts all risks by name", newer, []string{"Flood", "Fire"}, []string{"Fire", "Flood"}, nil, "accepted MultipleReasons via Fire, Flood"},
		{"it accepts risks accepted by the spec", bySpec, []string{"Fire"}, []string{"Fire", "Flood"}, nil, "accepted MultipleReasons via Fire, Flood"},
		{"it ignores acceptance of a risk that does not apply", newer, []string{"Wind"}, nil, []string{"ConditionalUpdateRisk"}, "MultipleReasons"},
		{"it recognizes the applicable risk by the reason", older, []string{"Fire"}, []string{"Fire"}, nil, "accepted Fire via Fire"},
		{"it accepts one name for all risks", newer, []string{"ConditionalUpdateRisk", "Fire"}, []string{"ConditionalUpdateRisk"}, nil, "accepted MultipleReasons via ConditionalUpdateRisk"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, accepted, unaccepted := choose(t, recommend.Input{ClusterVersion: tt.cv, Accept: tt.accept}, "1.1.1")
			assert.ElementsMatch(t, tt.accepted, accepted)
			assert.ElementsMatch(t, tt.unaccepted, unaccepted)
			assert.Contains(t, out, "\nReason: "+tt.reason+"\n")
		})
	}
	risks := recommend.Assess(recommend.Input{ClusterVersion: bySpec}).Risks
	require.Len(t, risks, 3)
	assert.Equal(t, recommend.Risk{Name: "Flood", URL: "https://example.com/Flood", Message: "Flood may happen.", Applies: "Unknown", Accepted: true}, risks[1])
}

func TestBlockedMinorUpdatesAreNotRecommended(t *testing.T) {
	blocked := func(versions ...string) *configv1.ClusterVersion {
		cv := cluster(versions...)
		cv.Status.Conditions = append(cv.Status.Conditions, is(configv1.OperatorUpgradeable, configv1.ConditionFalse, "AdminAck", "Say yes."))
		return cv
	}
	recommended := blocked("2.0.0", "1.2.0", "1.1.1", "1.3.0+", "0.9.0")
	recommended.Status.ConditionalUpdates = append(recommended.Status.ConditionalUpdates,
		conditional(configv1.Release{Version: "1.2.1", Image: "a"}, "True", "AsExpected", "", "Fire"),
		conditional(configv1.Release{Version: "1.2.2", Image: "b"}, "False", "Upgrade", "Not yet.", "Upgrade"))
	recommended.Status.ConditionalUpdates[2].Risks[0].Message = "For: Say yes. Please."
	a := recommend.Assess(recommend.Input{ClusterVersion: recommended})
	type texts struct{ status, reason, message string }
	got := map[string]texts{}
	for _, u := range a.Updates {
		got[u.Version] = texts{string(u.Recommended), u.Reason, u.Message}
	}
	assert.Equal(t, map[string]texts{
		"0.9.0": {"True", "", ""}, "1.1.1": {"True", "", ""},
		"1.2.0": {"False", "AdminAck", "Say yes."}, "2.0.0": {"False", "AdminAck", "Say yes."},
		"1.2.1": {"False", "AdminAck", "Say yes."},
		"1.2.2": {"False", "Upgrade", "Not yet."},
		"1.3.0": {"False", "MultipleReasons", "Say yes.\n\nIt burns.\nHot."},
	}, got)
	_, accepted, unaccepted := choose(t, recommend.Input{ClusterVersion: recommended, Accept: []string{"UpgradeableFalse"}}, "1.2.1")
	assert.Empty(t, unaccepted, "the other risk did not apply")
	assert.Equal(t, []string{"UpgradeableFalse"}, accepted)
	assert.Equal(t, "True", string(recommended.Status.ConditionalUpdates[1].Conditions[0].Status), "the input is unchanged")

	strange := blocked("1.2.0", "one")
	strange.Status.Desired.Version = "today"
	notes := recommend.Assess(recommend.Input{ClusterVersion: strange}).Notes()
	require.Len(t, notes, 2)
	assert.True(t, strings.HasPrefix(notes[0], `warning: Cannot parse SemVer available update "one": `), notes[0])
	assert.True(t, strings.HasPrefix(notes[1], `warning: Cannot inject Upgradeable=False as a conditional update risk: cannot parse SemVer version "today": `), notes[1])
	assert.True(t, strings.HasSuffix(notes[1], "\n\nReason: AdminAck\n  Message: Say yes.\n"), notes[1])
}

//threat:dumps-cluster-updates
func FuzzAssess(f *testing.F) {
	seed, err := json.Marshal(cluster("1.1.1", "1.2.0+"))
	require.NoError(f, err)
	f.Add(seed, []byte(`[{"labels":{"alertname":"KubeNodeNotReady"},"state":"firing"}]`), "1.1.1")
	f.Fuzz(func(t *testing.T, clusterVersion, alerts []byte, version string) {
		in := recommend.Input{ClusterVersion: &configv1.ClusterVersion{}}
		if json.Unmarshal(clusterVersion, in.ClusterVersion) != nil || json.Unmarshal(alerts, &in.Alerts) != nil {
			t.Skip()
		}
		a := recommend.Assess(in)
		require.NoError(t, a.Text(&bytes.Buffer{}, false))
		if wanted, err := semver.Parse(version); err == nil {
			if update, err := a.Choose(wanted); err == nil {
				require.NoError(t, a.UpdateText(&bytes.Buffer{}, update))
			}
		}
	})
}
