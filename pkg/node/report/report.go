// Package report writes what others read about the node stage. ClusterOperator machine-config reports to the version operator and its clients
// whether the required pools run the release, and whether the next update may start. A MachineConfigNode for each node has its pool and its
// desired config. MachineConfiguration cluster lists the effective node disruption policies. The state is in the pools, the nodes and these
// objects, so a new leader continues.
package report

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// PoolsDegraded is our own condition of the ClusterOperator: it names all degraded pools. Those that the release does not require are nowhere
// else in its conditions than here and in Upgradeable.
const PoolsDegraded configv1.ClusterStatusConditionType = "PoolsDegraded"

// Reasons of the ClusterOperator's conditions. Those of Degraded and Upgradeable are OpenShift's, except kubeletSkew.
const (
	asExpected          = "AsExpected"
	bootstrapping       = "Bootstrapping"
	requiredPoolsFailed = "RequiredPoolsFailed"
	degradedPool        = "DegradedPool"
	kubeletSkew         = "KubeletSkew"
	multipleReasons     = "MultipleReasons"
)

// Names of the versions that the ClusterOperator reports.
const (
	operatorVersion = "operator"
	imageVersion    = "operator-image"
)

// maxKubeletSkew is the number of minor versions that a kubelet may be older than the API server.
// Source: https://kubernetes.io/releases/version-skew-policy/#kubelet.
const maxKubeletSkew = 3

// Options identify the stage.
type Options struct {
	// Version is the controller's version, which rendered MachineConfigs record. Release is the version of the release that contains it.
	Version, Release string
	// Image is the stage's own image, by pullspec; empty if it is not known.
	Image string
	// OSImage is the release's image of the operating system, by pullspec; empty if it has none.
	OSImage string
	// DegradedPoolsGate makes every degraded pool hold the version back and set Degraded, as in OpenShift. Otherwise only required pools do.
	DegradedPoolsGate bool
}

// State is what the status is computed from.
type State struct {
	Pools []*mcfgv1.MachineConfigPool
	// Configs are the MachineConfigs by name.
	Configs map[string]*mcfgv1.MachineConfig
	Nodes   []*corev1.Node
	// Policies are the NodeRolloutPolicies by name.
	Policies map[string]*api.NodeRolloutPolicy
	// OtherRelease says why the controller may not render, as a sentence without subject and period: cluster.OtherRelease.
	OtherRelease string
	// APIServer is the version of the API server; nil if it is not known.
	APIServer *version.Version
}

// Status returns the status of the ClusterOperator, and how long it stays true without a change of the state; zero if no time changes it.
// The release's version is reported once the required pools run its configs, and at the first install at once, as OpenShift does: there, the
// version operator waits for Available.
func Status(before configv1.ClusterOperatorStatus, s State, o Options, now time.Time) (configv1.ClusterOperatorStatus, time.Duration) {
	// A cache has no order. If the texts followed it, each reconcile would write them again.
	s.Pools = slices.SortedFunc(slices.Values(s.Pools), func(a, b *mcfgv1.MachineConfigPool) int { return strings.Compare(a.Name, b.Name) })
	after := *before.DeepCopy()
	set := func(kind configv1.ClusterStatusConditionType, is bool, reason, message string) {
		next := configv1.ClusterOperatorStatusCondition{
			Type: kind, Status: configv1.ConditionFalse, Reason: reason, Message: printable.Lines(message), LastTransitionTime: metav1.NewTime(now),
		}
		if is {
			next.Status = configv1.ConditionTrue
		}
		api.SetCondition(&after.Conditions, next)
	}
	var since time.Time
	if progressing := api.FindCondition(before.Conditions, configv1.OperatorProgressing); progressing != nil && progressing.Status == configv1.ConditionTrue {
		since = progressing.LastTransitionTime.Time
	}
	l := levelOf(s, o, since, now)
	versions := []configv1.OperandVersion{{Name: operatorVersion, Version: o.Release}}
	if o.Image != "" {
		versions = append(versions, configv1.OperandVersion{Name: imageVersion, Version: o.Image})
	}
	atLevel := l.waiting == "" && l.failure == ""
	if len(before.Versions) == 0 || atLevel {
		after.Versions = versions
	}
	available := api.FindCondition(before.Conditions, configv1.OperatorAvailable)
	isBootstrapping := (available == nil || available.Status != configv1.ConditionTrue) && !atLevel

	if isBootstrapping {
		set(configv1.OperatorAvailable, false, bootstrapping, l.why())
	} else {
		set(configv1.OperatorAvailable, true, asExpected, "Cluster has deployed "+o.Release)
	}
	isProgressing := isBootstrapping || !slices.Equal(after.Versions, versions)
	switch {
	case isBootstrapping:
		set(configv1.OperatorProgressing, true, "", fmt.Sprintf("Cluster is bootstrapping %s: %s", o.Release, l.why()))
	case isProgressing:
		set(configv1.OperatorProgressing, true, "", fmt.Sprintf("Working towards %s: %s", o.Release, l.why()))
	default:
		set(configv1.OperatorProgressing, false, "", "Cluster version is "+o.Release)
	}
	switch {
	case l.failure == "":
		set(configv1.OperatorDegraded, false, asExpected, "")
	case isProgressing:
		set(configv1.OperatorDegraded, true, requiredPoolsFailed, fmt.Sprintf("Unable to apply %s: %s", o.Release, l.failure))
	default:
		set(configv1.OperatorDegraded, true, requiredPoolsFailed, fmt.Sprintf("Failed to resync %s because: %s", o.Release, l.failure))
	}
	degraded := degradedPools(s.Pools)
	set(PoolsDegraded, len(degraded) > 0, "", strings.Join(degraded, "; "))
	reason, message := preventsUpgrade(degraded, s)
	set(configv1.OperatorUpgradeable, reason == asExpected, reason, message)
	after.RelatedObjects = relatedObjects()
	after.Extension = summarize(s.Pools)
	var wait time.Duration
	if !l.overdue.IsZero() {
		wait = l.overdue.Sub(now)
	}
	return after, wait
}

// degradedPools describes the degraded pools.
func degradedPools(pools []*mcfgv1.MachineConfigPool) []string {
	var list []string
	for _, p := range pools {
		if pool.IsTrue(p, mcfgv1.MachineConfigPoolDegraded) {
			list = append(list, describe(p))
		}
	}
	return list
}

// preventsUpgrade returns reason and message of the condition Upgradeable; asExpected if the next update may start. Paused and updating pools
// do not prevent it.
func preventsUpgrade(degraded []string, s State) (reason, message string) {
	var reasons, messages []string
	if len(degraded) > 0 {
		reasons = append(reasons, degradedPool)
		messages = append(messages, "One or more machine config pools are degraded, please see `kubectl get mcp` for further details and resolve before upgrading: "+strings.Join(degraded, "; "))
	}
	if old := oldKubelets(s); len(old) > 0 {
		reasons = append(reasons, kubeletSkew)
		messages = append(messages, fmt.Sprintf("API servers of the next minor version, %d.%d, do not support the kubelets of %s: update these kubelets first",
			s.APIServer.Major(), s.APIServer.Minor()+1, printable.List(old, namedNodes)))
	}
	switch len(reasons) {
	case 0:
		return asExpected, ""
	case 1:
		return reasons[0], messages[0]
	default:
		return multipleReasons, strings.Join(messages, "\n")
	}
}

// oldKubelets names the nodes whose kubelet is too old for the API server of the next minor version.
func oldKubelets(s State) []string {
	if s.APIServer == nil {
		return nil
	}
	var old []string
	for _, n := range s.Nodes {
		kubelet, err := version.ParseGeneric(n.Status.NodeInfo.KubeletVersion)
		if err != nil || kubelet.Major() != s.APIServer.Major() {
			continue // virtual nodes report other versions
		}
		if kubelet.Minor()+maxKubeletSkew < s.APIServer.Minor()+1 {
			old = append(old, fmt.Sprintf("%s (%d.%d)", n.Name, kubelet.Major(), kubelet.Minor()))
		}
	}
	slices.Sort(old)
	return old
}

// summarize returns one line for each pool, which `kubectl describe` shows.
func summarize(pools []*mcfgv1.MachineConfigPool) runtime.RawExtension {
	lines := map[string]string{}
	for _, p := range pools {
		switch message := pool.Message(p, mcfgv1.MachineConfigPoolUpdated); {
		case pool.IsTrue(p, mcfgv1.MachineConfigPoolDegraded):
			lines[p.Name] = describe(p)
		case message != "":
			lines[p.Name] = message
		default:
			lines[p.Name] = fmt.Sprintf("%d of %d nodes are updated to MachineConfig %s", p.Status.UpdatedMachineCount, p.Status.MachineCount, p.Spec.Configuration.Name)
		}
	}
	raw, err := json.Marshal(lines)
	if err != nil {
		panic(err) // a map of strings has JSON
	}
	return runtime.RawExtension{Raw: raw}
}

// relatedObjects are the objects that `oc adm inspect` and must-gather collect.
func relatedObjects() []configv1.ObjectReference {
	return []configv1.ObjectReference{
		{Resource: "namespaces", Name: api.MachineConfigNamespace},
		{Group: api.MachineConfigGroup, Resource: "machineconfigpools"},
		{Group: api.MachineConfigGroup, Resource: "machineconfigs"},
		{Group: api.MachineConfigGroup, Resource: "kubeletconfigs"},
	}
}
