package upgradeable_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/update/upgradeable"
)

func operator(name string, status configv1.ConditionStatus, reason, message string) configv1.ClusterOperator {
	co := configv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: name}}
	co.Status.Conditions = []configv1.ClusterOperatorStatusCondition{
		{Type: configv1.OperatorAvailable, Status: configv1.ConditionFalse, Reason: "NotThisOne"},
		{Type: configv1.OperatorUpgradeable, Status: status, Reason: reason, Message: message},
	}
	return co
}

func refusing(name, reason, message string) configv1.ClusterOperator {
	return operator(name, configv1.ConditionFalse, reason, message)
}

func configMap(data ...string) upgradeable.ConfigMap {
	cm := upgradeable.ConfigMap{Found: true, Data: map[string]string{}}
	for i := 0; i+1 < len(data); i += 2 {
		cm.Data[data[i]] = data[i+1]
	}
	return cm
}

// at returns the input of an installed cluster at 4.19.3 with both ConfigMaps.
func at(edit func(*upgradeable.Input)) upgradeable.Input {
	in := upgradeable.Input{Current: "4.19.3", Installed: true, Cluster: upgradeable.Cluster{Gates: configMap(), Acks: configMap()}}
	edit(&in)
	return in
}

// said returns the condition as "status|reason|message", or "" for none.
func said(in upgradeable.Input) string {
	c, ok := upgradeable.Condition(upgradeable.Find(in))
	if !ok {
		return ""
	}
	return string(c.Status) + "|" + c.Reason + "|" + c.Message
}

const (
	updatingText  = "An update is already in progress and the details are in the Progressing condition."
	overridesText = "Disabling ownership via cluster version overrides prevents updates between minor or major versions. Please remove overrides before requesting a minor or major version update."
	poolText      = "One or more machine config pools are degraded, please see `oc get mcp` for further details and resolve before upgrading"
)

// condition is a row of TestConditionListsTheObstacles.
type condition struct {
	name string
	edit func(*upgradeable.Input)
	want string
	// risks contains the obstacles' names.
	risks []string
}

func rows() []condition {
	return slices.Concat(rowsOfOperators(), rowsOfGates(), rowsOfTheRest())
}

func rowsOfOperators() []condition {
	return []condition{
		{name: "it is absent without obstacles", edit: func(*upgradeable.Input) {}},
		{
			name: "it is absent if operators are upgradeable or unknown",
			edit: func(in *upgradeable.Input) {
				in.Operators = []configv1.ClusterOperator{
					operator("dns", configv1.ConditionTrue, "AsExpected", ""), operator("etcd", configv1.ConditionUnknown, "NoData", "?"), {},
				}
			},
		},
		{
			name: "it has the reason of a single operator",
			edit: func(in *upgradeable.Input) {
				in.Operators = []configv1.ClusterOperator{refusing("machine-config", "DegradedPool", poolText)}
			},
			want:  "False|DegradedPool|Cluster operator machine-config should not be upgraded between minor versions: " + poolText,
			risks: []string{"ClusterOperatorUpgradeable-machine-config"},
		},
		{
			name: "it lists several operators by name",
			edit: func(in *upgradeable.Input) {
				in.Operators = []configv1.ClusterOperator{
					refusing("machine-config", "PoolUpdating", "pools are updating"), refusing("control-plane-machine-set", "AsExpected", "not upgradable"),
				}
			},
			want: "False|ClusterOperatorsNotUpgradeable|Multiple cluster operators should not be upgraded between minor versions:\n" +
				"* Cluster operator control-plane-machine-set should not be upgraded between minor versions: AsExpected: not upgradable\n" +
				"* Cluster operator machine-config should not be upgraded between minor versions: PoolUpdating: pools are updating",
			risks: []string{"ClusterOperatorUpgradeable-control-plane-machine-set", "ClusterOperatorUpgradeable-machine-config"},
		},
		{
			name: "it has a default reason for an operator without one",
			edit: func(in *upgradeable.Input) { in.Operators = []configv1.ClusterOperator{refusing("dns", "", "")} },
			want: "False|ClusterOperatorNotUpgradeable|Cluster operator dns should not be upgraded between minor versions: it gives no reason.",
		},
		{
			name: "it does not repeat an invalid reason",
			edit: func(in *upgradeable.Input) {
				in.Operators = []configv1.ClusterOperator{refusing("dns", "not good\nat all", "why")}
			},
			want: "False|ClusterOperatorNotUpgradeable|Cluster operator dns should not be upgraded between minor versions: why",
		},
		{
			name: "it keeps the lines of an operator's message",
			edit: func(in *upgradeable.Input) {
				in.Operators = []configv1.ClusterOperator{refusing("dns", "Lines", "  one\r\ntwo\x1b[31m\t\x00three\xff \n")}
			},
			want: "False|Lines|Cluster operator dns should not be upgraded between minor versions: one\ntwo[31m three\uFFFD",
		},
		{
			name: "it prevents an operator from imitating others",
			edit: func(in *upgradeable.Input) {
				in.Operators = []configv1.ClusterOperator{refusing("a", "A", "no\n* Cluster operator c is to blame"), refusing("b", "B", "no")}
			},
			want: "False|ClusterOperatorsNotUpgradeable|Multiple cluster operators should not be upgraded between minor versions:\n" +
				"* Cluster operator a should not be upgraded between minor versions: A: no\n  * Cluster operator c is to blame\n" +
				"* Cluster operator b should not be upgraded between minor versions: B: no",
		},
		{
			name:  "it reports unreadable operators",
			edit:  func(in *upgradeable.Input) { in.OperatorsErr = errors.New("no route to host") },
			want:  "Unknown|EvaluationFailed|Cannot determine whether ClusterOperators block minor or major version updates: no route to host",
			risks: []string{"ClusterOperatorUpgradeableUnknown"},
		},
		{
			name:  "it prefers known obstacles to unknown ones",
			edit:  func(in *upgradeable.Input) { in.OperatorsErr, in.Updating = errors.New("no route to host"), true },
			want:  "False|UpdateInProgress|" + updatingText,
			risks: []string{"ClusterOperatorUpgradeableUnknown", "ClusterVersionUpdating"},
		},
	}
}

func rowsOfGates() []condition {
	const gate, text = "ack-4.19-kube-1.33-api-removals-in-4.20", "APIs are removed: see https://example.com/removed-apis (and acknowledge)."
	gated := func(more func(*upgradeable.Input)) func(*upgradeable.Input) {
		return func(in *upgradeable.Input) {
			in.Gates = configMap(gate, text)
			more(in)
		}
	}
	none := func(*upgradeable.Input) {}
	return []condition{
		{name: "it waits for an acknowledgement", edit: gated(none), want: "False|AdminAckRequired|" + text, risks: []string{"AdminAck-" + gate}},
		{name: "it is absent after the acknowledgement", edit: gated(func(in *upgradeable.Input) { in.Acks = configMap(gate, "true") })},
		{
			name: "it accepts only true as an acknowledgement", edit: gated(func(in *upgradeable.Input) { in.Acks = configMap(gate, "True") }),
			want: "False|AdminAckRequired|" + text,
		},
		{name: "it ignores gates of other minor versions", edit: gated(func(in *upgradeable.Input) { in.Current = "4.20.0-rc.1" })},
		{name: "it distinguishes 4.1 from 4.19", edit: gated(func(in *upgradeable.Input) { in.Current = "4.1.9" })},
		{name: "it ignores gates during an install", edit: gated(func(in *upgradeable.Input) { in.Installed = false })},
		{
			name: "it accepts gates of any platform",
			edit: func(in *upgradeable.Input) {
				in.Current, in.Gates = "1.2.3", configMap("ack-1.2-x", "read the notes")
			},
			want: "False|AdminAckRequired|read the notes",
		},
		{
			name: "it joins gates in the order of their keys",
			edit: func(in *upgradeable.Input) { in.Gates = configMap("ack-4.19-b", "B.", "ack-4.19-a", "A.") },
			want: "False|AdminAckRequired|A. B.", risks: []string{"AdminAck-ack-4.19-a", "AdminAck-ack-4.19-b"},
		},
		{
			name: "it blocks on a gate without a text", edit: func(in *upgradeable.Input) { in.Gates = configMap("ack-4.19-a", " ") },
			want: "False|AdminAckConfigMapGateValueError|admin-gates configmap gate ack-4.19-a must contain a non-empty value.",
		},
		{
			name: "it blocks on a gate without a version", edit: func(in *upgradeable.Input) { in.Gates = configMap("ack-4.19--a", "x") },
			want: `False|AdminAckConfigMapGateNameError|admin-gates configmap gate ack-4.19--a has invalid format; must comply with "^ack-([0-9]+[.][0-9]+)-[^-]".`,
		},
		{
			name: "it separates gates with different reasons",
			edit: func(in *upgradeable.Input) { in.Gates = configMap("ack-4.19-a", "A.", "b", "B.", "ack-4.19-c", "C.") },
			want: "False|MultipleReasons|Cluster should not be upgraded between minor versions for multiple reasons: AdminAckRequired,AdminAckConfigMapGateNameError\n" +
				"* A. C.\n* admin-gates configmap gate b has invalid format; must comply with \"^ack-([0-9]+[.][0-9]+)-[^-]\".",
		},
		{name: "it does not require gates that the release lacks", edit: func(in *upgradeable.Input) { in.Gates, in.Acks = upgradeable.ConfigMap{}, upgradeable.ConfigMap{} }},
		{
			name: "it requires the gates ConfigMap of the release", edit: func(in *upgradeable.Input) { in.Gates, in.BringsGates = upgradeable.ConfigMap{}, true },
			want: "False|UnableToGetAdminGatesConfigMap|admin-gates configmap not found: create ConfigMap openshift-config-managed/admin-gates.", risks: []string{"AdminAckUnknown"},
		},
		{
			name: "it requires the acknowledgements ConfigMap of the release", edit: func(in *upgradeable.Input) { in.Acks, in.BringsAcks = upgradeable.ConfigMap{}, true },
			want: "False|UnableToGetAdminAcksConfigMap|admin-acks configmap not found: create ConfigMap openshift-config/admin-acks.", risks: []string{"AdminAckUnknown"},
		},
		{
			name: "it requires the acknowledgements ConfigMap if a gate needs it", edit: gated(func(in *upgradeable.Input) { in.Acks = upgradeable.ConfigMap{} }),
			want: "False|MultipleReasons|Cluster should not be upgraded between minor versions for multiple reasons: UnableToGetAdminAcksConfigMap,AdminAckRequired\n" +
				"* admin-acks configmap not found: create ConfigMap openshift-config/admin-acks.\n* " + text,
			risks: []string{"AdminAckUnknown", "AdminAck-" + gate},
		},
		{
			name: "it reports unreadable gates", edit: func(in *upgradeable.Input) { in.Gates = upgradeable.ConfigMap{Err: errors.New("forbidden")} },
			want: "Unknown|EvaluationFailed|Unable to access configmap openshift-config-managed/admin-gates: forbidden", risks: []string{"AdminAckUnknown"},
		},
		{
			name: "it reports unreadable acknowledgements", edit: gated(func(in *upgradeable.Input) { in.Acks = upgradeable.ConfigMap{Err: errors.New("forbidden")} }),
			want: "Unknown|EvaluationFailed|Unable to access configmap openshift-config/admin-acks: forbidden", risks: []string{"AdminAckUnknown"},
		},
	}
}

func rowsOfTheRest() []condition {
	return []condition{
		{
			name: "it blocks on overrides",
			edit: func(in *upgradeable.Input) {
				in.Overrides = []configv1.ComponentOverride{{Kind: "X"}, {Kind: "Y", Unmanaged: true}}
			},
			want: "False|ClusterVersionOverridesSet|" + overridesText, risks: []string{"ClusterVersionOverrides"},
		},
		{
			name: "it ignores managed overrides",
			edit: func(in *upgradeable.Input) { in.Overrides = []configv1.ComponentOverride{{Kind: "X"}} },
		},
		{
			name:  "it lists the objects being deleted in order",
			edit:  func(in *upgradeable.Input) { in.Deletions = []string{"Service b/b", "Deployment.apps a/a"} },
			want:  "False|ResourceDeletionInProgress|Cluster minor or major version upgrades are not allowed while resource deletions are in progress; resources=Deployment.apps a/a,Service b/b",
			risks: []string{"ResourceDeletionInProgress"},
		},
		{
			name: "it blocks during an update", edit: func(in *upgradeable.Input) { in.Updating = true },
			want: "False|UpdateInProgress|" + updatingText, risks: []string{"ClusterVersionUpdating"},
		},
		{
			name: "it collects reasons",
			edit: func(in *upgradeable.Input) {
				in.Operators = []configv1.ClusterOperator{refusing("machine-config", "DegradedPool", poolText)}
				in.Updating = true
			},
			want: "False|MultipleReasons|Cluster should not be upgraded between minor versions for multiple reasons: DegradedPool,UpdateInProgress\n" +
				"* Cluster operator machine-config should not be upgraded between minor versions: " + poolText + "\n* " + updatingText,
		},
		{
			name: "it counts operators as one reason",
			edit: func(in *upgradeable.Input) {
				in.Operators = []configv1.ClusterOperator{refusing("b", "B", "no"), refusing("a", "A", "no")}
				in.Overrides = []configv1.ComponentOverride{{Unmanaged: true}}
			},
			want: "False|MultipleReasons|Cluster should not be upgraded between minor versions for multiple reasons: ClusterVersionOverridesSet,ClusterOperatorsNotUpgradeable\n" +
				"* " + overridesText + "\n* Multiple cluster operators should not be upgraded between minor versions:\n" +
				"  * Cluster operator a should not be upgraded between minor versions: A: no\n" +
				"  * Cluster operator b should not be upgraded between minor versions: B: no",
			risks: []string{"ClusterVersionOverrides", "ClusterOperatorUpgradeable-a", "ClusterOperatorUpgradeable-b"},
		},
	}
}

//threat:operator-reason-against it prevents an operator from imitating others
//threat:operator-reason-against it does not repeat an invalid reason
func TestConditionListsTheObstacles(t *testing.T) {
	for _, tt := range rows() {
		t.Run(tt.name, func(t *testing.T) {
			in := at(tt.edit)
			assert.Equal(t, tt.want, said(in))
			if tt.risks != nil {
				var risks []string
				for _, o := range upgradeable.Find(in) {
					risks = append(risks, o.Risk)
				}
				assert.Equal(t, tt.risks, risks)
			}
			valid(t, in)
		})
	}
}

var (
	reasonPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)
	riskPattern   = regexp.MustCompile(`^[A-Z][A-Za-z0-9.-]*$`)
)

// valid checks the properties of all obstacles.
func valid(t *testing.T, in upgradeable.Input) {
	t.Helper()
	obstacles := upgradeable.Find(in)
	shown := func(text string) {
		assert.NotEmpty(t, text)
		assert.True(t, utf8.ValidString(text))
		assert.False(t, strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }), "%q", text)
	}
	risks := map[string]bool{}
	for _, o := range obstacles {
		assert.Regexp(t, reasonPattern, o.Reason)
		assert.LessOrEqual(t, len(o.Reason), 256)
		assert.Regexp(t, riskPattern, o.Risk)
		assert.LessOrEqual(t, len(o.Risk), 256)
		assert.False(t, risks[o.Risk], "the risk %s occurs twice", o.Risk)
		risks[o.Risk] = true
		assert.True(t, strings.HasPrefix(o.URL, "https://"), o.URL)
		shown(o.Message)
		assert.Less(t, len(o.Message), 3000)
	}
	c, ok := upgradeable.Condition(obstacles)
	assert.Equal(t, len(obstacles) > 0, ok)
	if ok {
		assert.Regexp(t, reasonPattern, c.Reason)
		shown(c.Message)
		assert.LessOrEqual(t, len(c.Message), 32<<10)
	}
	slices.Reverse(in.Operators)
	slices.Reverse(in.Deletions)
	assert.Equal(t, obstacles, upgradeable.Find(in), "the order of the input does not matter")
}

//threat:operator-reason-against
func TestConditionIsBounded(t *testing.T) {
	in := at(func(in *upgradeable.Input) {
		in.Gates = configMap()
		for i := range 300 {
			in.Operators = append(in.Operators, refusing(fmt.Sprintf("operator-%03d", i), strings.Repeat("R", 300), strings.Repeat("ä\n", 50_000)))
			in.Gates.Data[fmt.Sprintf("ack-4.19-%03d", i)] = strings.Repeat("x", 10_000)
			in.Gates.Data[fmt.Sprintf("bad-%03d", i)] = ""
			in.Deletions = append(in.Deletions, fmt.Sprintf("ConfigMap ns/%03d", i))
		}
		in.Overrides, in.Updating = []configv1.ComponentOverride{{Unmanaged: true}}, true
	})
	valid(t, in)
	assert.Len(t, upgradeable.Find(in), 1+101+101+1+1)
	text := said(in)
	assert.Contains(t, text, "\n  * Cluster operator operator-000 ")
	assert.Contains(t, text, "\n  * and 100 more")
	assert.Contains(t, text, " and 200 more\n")
	assert.Contains(t, text, "\n* "+updatingText, "one source does not displace the others")
}

func TestRisksOfDifferentSubjectsDiffer(t *testing.T) {
	in := at(func(in *upgradeable.Input) {
		in.Gates = configMap("ack-4.19-a_b", "x", "ack-4.19-a-b", "x", "ack-4.19-a.b", "x")
	})
	valid(t, in)
	var risks []string
	for _, o := range upgradeable.Find(in) {
		risks = append(risks, o.Risk)
	}
	assert.Equal(t, []string{"AdminAck-ack-4.19-a-b", "AdminAck-ack-4.19-a.b", "AdminAck-ack-4.19-a-b-"}, []string{risks[0], risks[1], risks[2][:len(risks[2])-16]})
}

func TestObstacleLinksToTheFirstURLOfItsText(t *testing.T) {
	for value, want := range map[string]string{
		"see https://example.com/a.":              "https://example.com/a",
		"(https://example.com/a?b=c#d), or http:": "https://example.com/a?b=c#d",
		"http://example.com":                      "https://github.com/cluster-version/cvo/blob/main/docs/user/preconditions.md#admin-acks",
		"https://":                                "https://github.com/cluster-version/cvo/blob/main/docs/user/preconditions.md#admin-acks",
		"https://example.com/\u202egnp.exe":       "https://github.com/cluster-version/cvo/blob/main/docs/user/preconditions.md#admin-acks",
	} {
		found := upgradeable.Find(at(func(in *upgradeable.Input) { in.Gates = configMap("ack-4.19-a", value) }))
		require.Len(t, found, 1)
		assert.Equal(t, want, found[0].URL, value)
	}
}

func TestObstaclesConcernMinorAndMajorUpdates(t *testing.T) {
	for _, tt := range []struct {
		name, current, target string
		want                  bool
	}{
		{"it concerns the next minor version", "4.19.3", "4.20.0", true},
		{"it concerns a pre-release of it", "4.19.3", "4.20.0-rc.0", true},
		{"it concerns the next major version", "4.23.1", "5.0.0", true},
		{"it does not concern a patch", "4.19.3", "4.19.4", false},
		{"it does not concern the same version", "4.19.3", "4.19.3", false},
		{"it does not concern an update from a pre-release", "4.19.0-rc.1", "4.19.0", false},
		{"it does not concern a rollback", "4.19.3", "4.18.9", false},
		{"it concerns an invalid version", "4.19.3", "four", true},
		{"it concerns a cluster without a version", "", "4.19.3", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, upgradeable.Obstacle{}.Concerns(tt.current, tt.target))
		})
	}
}

// TestURLsAreDocumented checks that the user documentation has every section that an obstacle links to.
func TestURLsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/user/preconditions.md")
	require.NoError(t, err)
	sections := map[string]bool{}
	for _, tt := range rows() {
		for _, o := range upgradeable.Find(at(tt.edit)) {
			if section, ours := strings.CutPrefix(o.URL, "https://github.com/cluster-version/cvo/blob/main/docs/user/preconditions.md#"); ours {
				sections[section] = true
			}
		}
	}
	assert.Len(t, sections, 5)
	for section := range sections {
		assert.Contains(t, strings.ToLower(string(page)), "\n### "+strings.ReplaceAll(section, "-", " ")+"\n")
	}
}

func TestOnlyUnreadInputIsPending(t *testing.T) {
	for name, edit := range map[string]func(*upgradeable.Input){
		"operators": func(in *upgradeable.Input) { in.OperatorsErr = upgradeable.ErrPending },
		"gates":     func(in *upgradeable.Input) { in.Gates.Err = upgradeable.ErrPending },
		"acks":      func(in *upgradeable.Input) { in.Acks.Err = fmt.Errorf("reading: %w", upgradeable.ErrPending) },
	} {
		assert.True(t, upgradeable.Pending(upgradeable.Find(at(edit))), name)
	}
	assert.False(t, upgradeable.Pending(upgradeable.Find(at(func(in *upgradeable.Input) { in.OperatorsErr = errors.New("no") }))))
}

// FuzzFind uses arbitrary texts from operators and gates.
//
//threat:objections-clusteroperators-gates
func FuzzFind(f *testing.F) {
	f.Add("dns", "Reason", "message", "ack-4.19-a", "see https://example.com/.", "true", "4.19.3")
	f.Add("", "not a\nword", "\x00\xff\n* ", "ack-4.19-_", "", "", "")
	f.Add("ä", "A,", strings.Repeat("\u202e", 3000), "ack-99999999999999999999.1-a", "https://\n", "True", "99999999999999999999.1.0")
	f.Fuzz(func(t *testing.T, name, reason, message, key, value, ack, current string) {
		valid(t, upgradeable.Input{
			Current: current, Installed: true, Deletions: []string{name, message},
			Cluster: upgradeable.Cluster{
				Operators: []configv1.ClusterOperator{refusing(name+"1", reason, message), refusing(name+"2", message, reason)},
				Gates:     configMap(key, value, key+"x", message), Acks: configMap(key, ack),
			},
		})
	})
}
