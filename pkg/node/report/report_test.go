package report_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/report"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var options = report.Options{Version: "v2", Release: "1.1.0", OSImage: "registry.example.com/os@sha256:1"}

// cluster has the required pool master with three nodes and the pool worker with fifty. Both run configs of the release.
func cluster() report.State {
	s := report.State{Configs: map[string]*mcfgv1.MachineConfig{}, APIServer: version.MustParseGeneric("v1.35.2")}
	for name, machines := range map[string]int32{"master": 3, "worker": 50} {
		p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2, Labels: map[string]string{}}}
		if name == "master" {
			p.Labels[api.RequiredPoolLabel] = ""
		}
		p.Spec.Configuration = mcfgv1.MachineConfigPoolStatusConfiguration{
			ObjectReference: corev1.ObjectReference{Name: "rendered-" + name}, Source: []corev1.ObjectReference{{Name: "00-" + name}},
		}
		p.Status = mcfgv1.MachineConfigPoolStatus{
			ObservedGeneration: 2, Configuration: p.Spec.Configuration, MachineCount: machines, UpdatedMachineCount: machines,
		}
		setPool(p, mcfgv1.MachineConfigPoolUpdated, true, "All nodes are updated with MachineConfig rendered-"+name)
		setPool(p, mcfgv1.MachineConfigPoolUpdating, false, "")
		rendered := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-" + name, Annotations: map[string]string{
			api.ReleaseAnnotation: options.Release, api.GeneratedByAnnotation: options.Version,
		}}}
		rendered.Spec.OSImageURL = options.OSImage
		s.Configs[rendered.Name] = rendered
		s.Pools = append(s.Pools, p)
	}
	return s
}

func setPool(p *mcfgv1.MachineConfigPool, kind mcfgv1.MachineConfigPoolConditionType, is bool, message string) {
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	next := mcfgv1.MachineConfigPoolCondition{Type: kind, Status: status, Message: message, LastTransitionTime: metav1.NewTime(epoch)}
	for i, c := range p.Status.Conditions {
		if c.Type == kind {
			p.Status.Conditions[i] = next
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, next)
}

func poolOf(t *testing.T, s report.State, name string) *mcfgv1.MachineConfigPool {
	for _, p := range s.Pools {
		if p.Name == name {
			return p
		}
	}
	require.Fail(t, "no pool "+name)
	return nil
}

// updating makes a pool wait for its nodes.
func updating(p *mcfgv1.MachineConfigPool, updated int32) {
	setPool(p, mcfgv1.MachineConfigPoolUpdated, false, "")
	setPool(p, mcfgv1.MachineConfigPoolUpdating, true, "All nodes are updating to MachineConfig rendered-"+p.Name)
	p.Status.UpdatedMachineCount = updated
}

// reported is the status of a stage that runs a release.
func reported(release string) configv1.ClusterOperatorStatus {
	return configv1.ClusterOperatorStatus{
		Versions:   []configv1.OperandVersion{{Name: "operator", Version: release}},
		Conditions: []configv1.ClusterOperatorStatusCondition{{Type: configv1.OperatorAvailable, Status: configv1.ConditionTrue}},
	}
}

// describe returns a status as "version Available/Progressing/Degraded/Upgradeable/PoolsDegraded".
func describe(s configv1.ClusterOperatorStatus) string {
	var letters []string
	for _, kind := range []configv1.ClusterStatusConditionType{
		configv1.OperatorAvailable, configv1.OperatorProgressing, configv1.OperatorDegraded, configv1.OperatorUpgradeable, report.PoolsDegraded,
	} {
		letters = append(letters, string(api.FindCondition(s.Conditions, kind).Status[0]))
	}
	return s.Versions[0].Version + " " + strings.Join(letters, "/")
}

func message(s configv1.ClusterOperatorStatus, kind configv1.ClusterStatusConditionType) string {
	return api.FindCondition(s.Conditions, kind).Message
}

func TestRequiredPoolsDecideOnTheVersion(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, s *report.State, o *report.Options)
		want   string
		says   string // in Progressing
	}{
		{"all pools updated", func(*testing.T, *report.State, *report.Options) {}, "1.1.0 T/F/F/T/F", "Cluster version is 1.1.0"},
		{"G1 no worker updated", func(t *testing.T, s *report.State, _ *report.Options) {
			updating(poolOf(t, *s, "worker"), 0)
		}, "1.1.0 T/F/F/T/F", "Cluster version is 1.1.0"},
		{"G2 the worker pool is degraded", func(t *testing.T, s *report.State, _ *report.Options) {
			setPool(poolOf(t, *s, "worker"), mcfgv1.MachineConfigPoolDegraded, true, `Node w1 is reporting: "no space"`)
		}, "1.1.0 T/F/F/F/T", "Cluster version is 1.1.0"},
		{"G2 the worker pool is degraded, as in OpenShift", func(t *testing.T, s *report.State, o *report.Options) {
			setPool(poolOf(t, *s, "worker"), mcfgv1.MachineConfigPoolDegraded, true, `Node w1 is reporting: "no space"`)
			o.DegradedPoolsGate = true
		}, "1.0.0 T/T/T/F/T", `Working towards 1.1.0: MachineConfigPool worker is degraded: Node w1 is reporting: "no space"`},
		{"one control-plane node updated", func(t *testing.T, s *report.State, _ *report.Options) {
			updating(poolOf(t, *s, "master"), 1)
		}, "1.0.0 T/T/F/T/F", "Working towards 1.1.0: 1 of 3 nodes of MachineConfigPool master are updated"},
		{"the control-plane pool is degraded", func(t *testing.T, s *report.State, _ *report.Options) {
			setPool(poolOf(t, *s, "master"), mcfgv1.MachineConfigPoolDegraded, true, "")
			setPool(poolOf(t, *s, "master"), mcfgv1.MachineConfigPoolRenderDegraded, true, "99-x: spec.config: no JSON")
		}, "1.0.0 T/T/T/F/T", "Working towards 1.1.0: MachineConfigPool master is degraded: 99-x: spec.config: no JSON"},
		{"G3 config of another controller", func(_ *testing.T, s *report.State, _ *report.Options) {
			s.Configs["rendered-master"].Annotations[api.GeneratedByAnnotation] = "v1"
		}, "1.0.0 T/T/F/T/F", "Working towards 1.1.0: MachineConfigPool master has no config of release 1.1.0 yet"},
		{"G3 config of another release", func(_ *testing.T, s *report.State, _ *report.Options) {
			s.Configs["rendered-master"].Annotations[api.ReleaseAnnotation] = "1.0.0"
		}, "1.0.0 T/T/F/T/F", "Working towards 1.1.0: MachineConfigPool master has no config of release 1.1.0 yet"},
		{"the release has no ControllerConfig yet", func(_ *testing.T, s *report.State, _ *report.Options) {
			s.Configs["rendered-master"].Annotations[api.ReleaseAnnotation] = "1.0.0"
			s.OtherRelease = "waits for ControllerConfig x"
		}, "1.0.0 T/T/F/T/F", "Working towards 1.1.0: MachineConfigPool master has no config of release 1.1.0 yet: it waits for ControllerConfig x"},
		{"G3 config with another OS image", func(_ *testing.T, s *report.State, _ *report.Options) {
			s.Configs["rendered-master"].Spec.OSImageURL = "registry.example.com/os@sha256:2"
		}, "1.0.0 T/T/F/T/F", "Working towards 1.1.0: MachineConfigPool master has no config of release 1.1.0 yet"},
		{"config with an OS image that a policy holds", func(_ *testing.T, s *report.State, _ *report.Options) {
			s.Configs["rendered-master"].Spec.OSImageURL = "registry.example.com/os@sha256:2"
			s.Policies = map[string]*api.NodeRolloutPolicy{"master": {Spec: api.NodeRolloutPolicySpec{HoldOSImage: true}}}
		}, "1.1.0 T/F/F/T/F", "Cluster version is 1.1.0"},
		{"G4 config with a user's OS image", func(_ *testing.T, s *report.State, _ *report.Options) {
			s.Configs["rendered-master"].Spec.OSImageURL = "registry.example.com/os@sha256:2"
			s.Configs["rendered-master"].Annotations[api.OSImageOverriddenAnnotation] = "true"
		}, "1.1.0 T/F/F/T/F", "Cluster version is 1.1.0"},
		{"config that was deleted", func(_ *testing.T, s *report.State, _ *report.Options) {
			delete(s.Configs, "rendered-master")
		}, "1.0.0 T/T/F/T/F", "Working towards 1.1.0: MachineConfigPool master has no config of release 1.1.0 yet"},
		{"daemons of another release and without a report", func(t *testing.T, s *report.State, _ *report.Options) {
			for i, role := range []string{"master", "master", "worker", "master", "master"} {
				poolOf(t, *s, role).Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{role: ""}}
				s.Nodes = append(s.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{role: ""}}})
			}
			s.Nodes[3].Labels[corev1.LabelOSStable] = "windows"
			s.Nodes[0].Annotations = map[string]string{api.DaemonReleaseAnnotation: "1.0.0"}
			s.Nodes[4].Annotations = map[string]string{api.NodeReleasedAnnotation: ""}
		}, "1.0.0 T/T/F/T/F", "Working towards 1.1.0: the daemons of these nodes of MachineConfigPool master are not of release 1.1.0 yet: n0, n1"},
		{"status of an earlier generation", func(t *testing.T, s *report.State, _ *report.Options) {
			poolOf(t, *s, "master").Generation++
		}, "1.0.0 T/T/F/T/F", "Working towards 1.1.0: the status of MachineConfigPool master is not current yet"},
		{"G5 the control-plane pool is paused", func(t *testing.T, s *report.State, _ *report.Options) {
			updating(poolOf(t, *s, "master"), 1)
			poolOf(t, *s, "master").Spec.Paused = true
		}, "1.0.0 T/T/T/T/F", "Working towards 1.1.0: 1 of 3 nodes of MachineConfigPool master are updated"},
		{"the control-plane pool is paused and updated", func(t *testing.T, s *report.State, _ *report.Options) {
			poolOf(t, *s, "master").Spec.Paused = true
		}, "1.1.0 T/F/F/T/F", "Cluster version is 1.1.0"},
		{"the control-plane pool is paused and not rendered yet", func(t *testing.T, s *report.State, _ *report.Options) {
			s.Configs["rendered-master"].Annotations[api.ReleaseAnnotation] = "1.0.0"
			poolOf(t, *s, "master").Spec.Paused = true
		}, "1.0.0 T/T/F/T/F", "Working towards 1.1.0: MachineConfigPool master has no config of release 1.1.0 yet"},
		{"the control-plane pool is paused and its status is not current", func(t *testing.T, s *report.State, _ *report.Options) {
			poolOf(t, *s, "master").Generation++
			poolOf(t, *s, "master").Spec.Paused = true
		}, "1.0.0 T/T/F/T/F", "Working towards 1.1.0: the status of MachineConfigPool master is not current yet"},
		{"no pools", func(_ *testing.T, s *report.State, _ *report.Options) {
			s.Pools = nil
		}, "1.0.0 T/T/F/T/F", "Working towards 1.1.0: MachineConfigPool master does not exist yet"},
		{"G8 a custom pool without nodes", func(t *testing.T, s *report.State, _ *report.Options) {
			p := poolOf(t, *s, "worker").DeepCopy()
			p.Name, p.Status.MachineCount, p.Status.UpdatedMachineCount = "infra", 0, 0
			s.Pools = append(s.Pools, p)
		}, "1.1.0 T/F/F/T/F", "Cluster version is 1.1.0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, o := cluster(), options
			tt.change(t, &s, &o)

			got, _ := report.Status(reported("1.0.0"), s, o, epoch)

			assert.Equal(t, tt.want, describe(got))
			assert.Equal(t, tt.says, message(got, configv1.OperatorProgressing))
		})
	}
}

func TestPausedRequiredPoolIsReported(t *testing.T) {
	s := cluster()
	updating(poolOf(t, s, "master"), 1)
	poolOf(t, s, "master").Spec.Paused = true

	got, _ := report.Status(reported("1.0.0"), s, options, epoch)
	assert.Equal(t, "Unable to apply 1.1.0: MachineConfigPool master is paused and cannot sync until unpaused: set spec.paused to false", message(got, configv1.OperatorDegraded))

	got, _ = report.Status(reported("1.1.0"), s, options, epoch)
	assert.Equal(t, "1.1.0 T/F/T/T/F", describe(got), "the release stays complete")
	assert.Equal(t, "Failed to resync 1.1.0 because: MachineConfigPool master is paused and cannot sync until unpaused: set spec.paused to false", message(got, configv1.OperatorDegraded))

	poolOf(t, s, "master").Spec.Paused = false
	got, _ = report.Status(got, s, options, epoch)
	assert.Equal(t, "1.1.0 T/F/F/T/F", describe(got), "G6")
}

func TestFirstInstallWaitsForAvailable(t *testing.T) {
	s := cluster()
	updating(poolOf(t, s, "master"), 0)

	got, _ := report.Status(configv1.ClusterOperatorStatus{}, s, options, epoch)
	assert.Equal(t, "1.1.0 F/T/F/T/F", describe(got))
	assert.Equal(t, "Cluster is bootstrapping 1.1.0: 0 of 3 nodes of MachineConfigPool master are updated", message(got, configv1.OperatorProgressing))

	again, _ := report.Status(got, s, options, epoch.Add(time.Hour/4))
	assert.Equal(t, got, again, "nothing changed")

	got, _ = report.Status(got, cluster(), options, epoch.Add(time.Hour))
	assert.Equal(t, "1.1.0 T/F/F/T/F", describe(got))
	assert.Equal(t, epoch.Add(time.Hour), api.FindCondition(got.Conditions, configv1.OperatorAvailable).LastTransitionTime.Time)

	got, _ = report.Status(got, s, options, epoch)
	assert.Equal(t, "1.1.0 T/F/F/T/F", describe(got), "a later change of the pool is no install")
}

func TestSlowRequiredPoolDegrades(t *testing.T) {
	s := cluster()
	updating(poolOf(t, s, "master"), 2)

	got, wait := report.Status(reported("1.0.0"), s, options, epoch.Add(10*time.Minute))
	assert.Equal(t, "1.0.0 T/T/F/T/F", describe(got))
	assert.Equal(t, 20*time.Minute, wait, "ten minutes for each of three machines")

	got, wait = report.Status(got, s, options, epoch.Add(30*time.Minute))
	assert.Equal(t, "1.0.0 T/T/T/T/F", describe(got))
	assert.Equal(t, "Unable to apply 1.1.0: after 30m0s, 2 of 3 nodes of MachineConfigPool master are updated: see `cvo nodes status master`", message(got, configv1.OperatorDegraded))
	assert.Zero(t, wait)

	got, _ = report.Status(got, cluster(), options, epoch.Add(31*time.Minute))
	assert.Equal(t, "1.1.0 T/F/F/T/F", describe(got))
}

// TestLateDaemonsDegrade has a pool whose config does not change, and whose daemons never run the release.
func TestLateDaemonsDegrade(t *testing.T) {
	s := cluster()
	s.Nodes = []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{
		Name: "a", Labels: map[string]string{"node-role.kubernetes.io/master": ""}, Annotations: map[string]string{api.DaemonReleaseAnnotation: "1.0.0"},
	}}}
	poolOf(t, s, "master").Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: s.Nodes[0].Labels}

	got, _ := report.Status(reported("1.0.0"), s, options, epoch)
	assert.Equal(t, "1.0.0 T/T/F/T/F", describe(got))
	got, wait := report.Status(got, s, options, epoch.Add(10*time.Minute))
	assert.Equal(t, "1.0.0 T/T/F/T/F", describe(got))
	assert.Equal(t, 20*time.Minute, wait)
	got, _ = report.Status(got, s, options, epoch.Add(30*time.Minute))
	assert.Equal(t, "1.0.0 T/T/T/T/F", describe(got))
	assert.Equal(t, "Unable to apply 1.1.0: after 30m0s, the daemons of these nodes of MachineConfigPool master are not of release 1.1.0 yet: a: "+
		"see `cvo nodes status master`", message(got, configv1.OperatorDegraded))
}

// TestTextsDoNotFollowTheOrderOfPools has two pools in each role, because a cache returns them in another order at each read.
func TestTextsDoNotFollowTheOrderOfPools(t *testing.T) {
	s, o := cluster(), options
	o.DegradedPoolsGate = true
	for _, name := range []string{"master", "worker"} {
		second := poolOf(t, s, name).DeepCopy()
		second.Name += "-2"
		s.Pools = append(s.Pools, second)
	}
	for _, p := range s.Pools {
		if strings.HasPrefix(p.Name, "master") {
			updating(p, 1)
		} else {
			setPool(p, mcfgv1.MachineConfigPoolDegraded, true, "")
		}
	}
	want, _ := report.Status(reported("1.0.0"), s, o, epoch)

	slices.Reverse(s.Pools)
	got, _ := report.Status(want, s, o, epoch.Add(time.Minute))

	assert.Equal(t, want, got)
	assert.Equal(t, "Unable to apply 1.1.0: MachineConfigPool worker is degraded; MachineConfigPool worker-2 is degraded", message(got, configv1.OperatorDegraded))
}

func TestOldKubeletsPreventTheNextMinor(t *testing.T) {
	s := cluster()
	for i, v := range []string{"v1.35.2", "v1.33.9-k3s1", "v1.32.0", "", "fake"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
		n.Status.NodeInfo.KubeletVersion = v
		s.Nodes = append(s.Nodes, n)
	}
	updating(poolOf(t, s, "worker"), 3)
	poolOf(t, s, "worker").Spec.Paused = true

	got, _ := report.Status(reported("1.1.0"), s, options, epoch)
	c := api.FindCondition(got.Conditions, configv1.OperatorUpgradeable)
	assert.Equal(t, configv1.ConditionFalse, c.Status)
	assert.Equal(t, "KubeletSkew", c.Reason)
	assert.Equal(t, "API servers of the next minor version, 1.36, do not support the kubelets of n2 (1.32): update these kubelets first", c.Message)

	setPool(poolOf(t, s, "worker"), mcfgv1.MachineConfigPoolDegraded, true, "")
	got, _ = report.Status(reported("1.1.0"), s, options, epoch)
	assert.Equal(t, "MultipleReasons", api.FindCondition(got.Conditions, configv1.OperatorUpgradeable).Reason)

	s.APIServer = version.MustParseGeneric("v1.34.0")
	setPool(poolOf(t, s, "worker"), mcfgv1.MachineConfigPoolDegraded, false, "")
	got, _ = report.Status(reported("1.1.0"), s, options, epoch)
	assert.Equal(t, "AsExpected", api.FindCondition(got.Conditions, configv1.OperatorUpgradeable).Reason)
}

func TestExtensionSummarizesPools(t *testing.T) {
	s := cluster()
	updating(poolOf(t, s, "worker"), 7)

	got, _ := report.Status(reported("1.0.0"), s, options, epoch)

	lines := map[string]string{}
	require.NoError(t, json.Unmarshal(got.Extension.Raw, &lines))
	assert.Equal(t, map[string]string{
		"master": "All nodes are updated with MachineConfig rendered-master",
		"worker": "7 of 50 nodes are updated to MachineConfig rendered-worker",
	}, lines)
}
