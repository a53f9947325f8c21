// Package disruption decides what a node must do after its files, units or keys have changed: nothing, reload or restart services, or
// reboot. It takes the difference between two Contents and the cluster's node disruption policies, and returns actions. In OpenShift,
// MachineConfiguration "cluster" contains these policies. The caller drains the node and runs the actions.
package disruption

import (
	"fmt"
	"path"
	"slices"
	"strings"

	operatorv1 "github.com/openshift/api/operator/v1"

	"github.com/cluster-version/cvo/pkg/node/config"
)

// Action is one action on a node.
type Action = operatorv1.NodeDisruptionPolicyStatusAction

// Unit returns the unit that an action reloads or restarts; empty for another action.
func Unit(a Action) string {
	switch {
	case a.Reload != nil:
		return string(a.Reload.ServiceName)
	case a.Restart != nil:
		return string(a.Restart.ServiceName)
	}
	return ""
}

// Decision is the result of the policies for one change.
type Decision struct {
	// Actions are in the order of the policies: files by path, units by name, SSH keys. Without a change the list is empty. It is a single
	// Reboot if any policy requires one, and a single None if no policy requires an action.
	Actions []Action
	// Drain reports whether the node must be drained first.
	Drain bool
}

// Default returns the policies that apply before an administrator adds any. They are the same as in OpenShift.
func Default() operatorv1.NodeDisruptionPolicyClusterStatus {
	file := func(name string, actions ...Action) operatorv1.NodeDisruptionPolicyStatusFile {
		return operatorv1.NodeDisruptionPolicyStatusFile{Path: name, Actions: actions}
	}
	none := Action{Type: operatorv1.NoneStatusAction}
	return operatorv1.NodeDisruptionPolicyClusterStatus{
		Files: []operatorv1.NodeDisruptionPolicyStatusFile{
			file("/etc/containers/policy.json", reloadCRIO),
			file("/etc/containers/registries.conf", Action{Type: operatorv1.SpecialStatusAction}),
			file("/etc/containers/registries.d", reloadCRIO),
			file("/etc/crio/policies", reloadCRIO),
			file("/etc/kubernetes/credential-providers", restart("kubelet.service")),
			file("/etc/kubernetes/kubelet-ca.crt", none),
			file("/etc/machine-config-daemon/no-reboot/containers-gpg.pub", reloadCRIO),
			file("/etc/nmstate/openshift", none),
			file("/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt", restart("coreos-update-ca-trust.service"), restart("crio.service")),
			file("/var/lib/kubelet/config.json", none),
		},
		SSHKey: operatorv1.NodeDisruptionPolicyStatusSSHKey{Actions: []Action{none}},
	}
}

// Policies returns the default policies and the administrator's. An administrator's policy replaces the default for the same path or the SSH
// keys. Invalid reports the policies that Policies leaves out.
func Policies(own operatorv1.NodeDisruptionPolicyConfig) operatorv1.NodeDisruptionPolicyClusterStatus {
	return merge(Default(), own)
}

func merge(policies operatorv1.NodeDisruptionPolicyClusterStatus, own operatorv1.NodeDisruptionPolicyConfig) operatorv1.NodeDisruptionPolicyClusterStatus {
	for _, file := range own.Files {
		if !path.IsAbs(file.Path) {
			continue
		}
		name := path.Clean(file.Path)
		policies.Files = slices.DeleteFunc(policies.Files, func(f operatorv1.NodeDisruptionPolicyStatusFile) bool { return f.Path == name })
		policies.Files = append(policies.Files, operatorv1.NodeDisruptionPolicyStatusFile{Path: name, Actions: actions(file.Actions)})
	}
	for _, unit := range own.Units {
		policies.Units = append(policies.Units, operatorv1.NodeDisruptionPolicyStatusUnit{Name: unit.Name, Actions: actions(unit.Actions)})
	}
	if len(own.SSHKey.Actions) > 0 {
		policies.SSHKey.Actions = actions(own.SSHKey.Actions)
	}
	return policies
}

// Invalid returns a text about each policy of an administrator that has no effect although the API server accepts it.
func Invalid(own operatorv1.NodeDisruptionPolicyConfig) []string {
	var texts []string
	for i, file := range own.Files {
		field := fmt.Sprintf("spec.nodeDisruptionPolicy.files[%d].path is %q", i, file.Path)
		isSame := func(other operatorv1.NodeDisruptionPolicySpecFile) bool {
			return path.Clean(other.Path) == path.Clean(file.Path)
		}
		switch {
		case !path.IsAbs(file.Path):
			texts = append(texts, field+": use an absolute path")
		case slices.ContainsFunc(own.Files[i+1:], isSame):
			texts = append(texts, field+", the same path as that of a later policy: remove one of the two")
		}
	}
	return texts
}

// ForHost is like Policies, for one host. A default policy with an action that the host does not accept requires a reboot: it is made for another
// distribution. An administrator's policy stays as it is, and its action fails.
func ForHost(
	own operatorv1.NodeDisruptionPolicyConfig, accepts func(Action) (bool, error),
) (operatorv1.NodeDisruptionPolicyClusterStatus, error) {
	policies := Default()
	for i, policy := range policies.Files {
		for _, action := range policy.Actions {
			if action.Type == operatorv1.SpecialStatusAction {
				action = reloadCRIO
			}
			accepted, err := accepts(action)
			if err != nil {
				return policies, err
			}
			if !accepted {
				policies.Files[i].Actions = []Action{{Type: operatorv1.RebootStatusAction}}
				break
			}
		}
	}
	return merge(policies, own), nil
}

// Decide returns the actions for a change. A change of the kernel, its arguments, FIPS mode, extensions or the image needs a reboot. So
// does a changed file or unit without a policy. For a file, the policy with the longest matching path applies: the path of the file, or of
// a folder above it.
func Decide(change config.Change, policies operatorv1.NodeDisruptionPolicyClusterStatus) Decision {
	reboot := Decision{Actions: []Action{{Type: operatorv1.RebootStatusAction}}, Drain: true}
	if change.FIPS || change.OSImage != (config.Step{}) || change.KernelType != (config.Step{}) || !change.KernelArguments.Empty() || !change.Extensions.Empty() {
		return reboot
	}
	var all []Action
	for _, name := range change.Files.All() {
		found, ok := forFile(policies.Files, name)
		if !ok {
			return reboot
		}
		all = append(all, found...)
	}
	for _, name := range change.Units.All() {
		i := slices.IndexFunc(policies.Units, func(u operatorv1.NodeDisruptionPolicyStatusUnit) bool { return string(u.Name) == name })
		if i < 0 {
			return reboot
		}
		all = append(all, policies.Units[i].Actions...)
	}
	if !change.SSHKeys.Empty() {
		if len(policies.SSHKey.Actions) == 0 {
			return reboot
		}
		all = append(all, policies.SSHKey.Actions...)
	}
	return settle(all)
}

// settle combines the actions of several policies.
func settle(all []Action) Decision {
	var d Decision
	none := 0
	for _, action := range all {
		switch action.Type {
		case operatorv1.NoneStatusAction:
			none++
			continue
		case operatorv1.SpecialStatusAction:
			// OpenShift drains only if the change of registries.conf can hide an image from a running pod. This package always drains.
			d.Actions = append(d.Actions, reloadCRIO)
			d.Drain = true
			continue
		case operatorv1.DrainStatusAction:
			d.Drain = true
		case operatorv1.ReloadStatusAction, operatorv1.RestartStatusAction, operatorv1.DaemonReloadStatusAction:
		default:
			// Reboot, and types of later versions.
			return Decision{Actions: []Action{{Type: operatorv1.RebootStatusAction}}, Drain: true}
		}
		d.Actions = append(d.Actions, action)
	}
	if len(d.Actions) == 0 && none > 0 {
		d.Actions = []Action{{Type: operatorv1.NoneStatusAction}}
	}
	return d
}

// forFile returns the actions of the policy with the longest path that matches the file or a folder above it.
func forFile(policies []operatorv1.NodeDisruptionPolicyStatusFile, name string) ([]Action, bool) {
	var longest string
	var found []Action
	for _, policy := range policies {
		folder := path.Clean(policy.Path)
		if name != folder && !strings.HasPrefix(name, strings.TrimSuffix(folder, "/")+"/") {
			continue
		}
		if len(folder) > len(longest) {
			longest, found = folder, policy.Actions
		}
	}
	return found, longest != ""
}

func actions(own []operatorv1.NodeDisruptionPolicySpecAction) []Action {
	out := make([]Action, 0, len(own))
	for _, a := range own {
		out = append(out, Action{Type: operatorv1.NodeDisruptionPolicyStatusActionType(a.Type), Reload: a.Reload, Restart: a.Restart})
	}
	return out
}

// reloadCRIO makes CRI-O reload its configuration.
var reloadCRIO = Action{Type: operatorv1.ReloadStatusAction, Reload: &operatorv1.ReloadService{ServiceName: "crio.service"}}

func restart(service operatorv1.NodeDisruptionPolicyServiceName) Action {
	return Action{Type: operatorv1.RestartStatusAction, Restart: &operatorv1.RestartService{ServiceName: service}}
}
