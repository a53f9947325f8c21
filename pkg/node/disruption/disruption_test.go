package disruption_test

import (
	"strings"
	"testing"

	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/disruption"
)

// list returns actions from words such as "Reload:crio.service".
func list(words ...string) []operatorv1.NodeDisruptionPolicySpecAction {
	var all []operatorv1.NodeDisruptionPolicySpecAction
	for _, word := range words {
		kind, service, _ := strings.Cut(word, ":")
		action := operatorv1.NodeDisruptionPolicySpecAction{Type: operatorv1.NodeDisruptionPolicySpecActionType(kind)}
		switch kind {
		case "Reload":
			action.Reload = &operatorv1.ReloadService{ServiceName: operatorv1.NodeDisruptionPolicyServiceName(service)}
		case "Restart":
			action.Restart = &operatorv1.RestartService{ServiceName: operatorv1.NodeDisruptionPolicyServiceName(service)}
		}
		all = append(all, action)
	}
	return all
}

// words is the reverse of list.
func words(actions []disruption.Action) []string {
	var all []string
	for _, a := range actions {
		text := string(a.Type)
		if a.Reload != nil {
			text += ":" + string(a.Reload.ServiceName)
		}
		if a.Restart != nil {
			text += ":" + string(a.Restart.ServiceName)
		}
		all = append(all, text)
	}
	return all
}

func onFile(path string, actions ...string) operatorv1.NodeDisruptionPolicySpecFile {
	return operatorv1.NodeDisruptionPolicySpecFile{Path: path, Actions: list(actions...)}
}

func onUnit(name string, actions ...string) operatorv1.NodeDisruptionPolicySpecUnit {
	return operatorv1.NodeDisruptionPolicySpecUnit{Name: operatorv1.NodeDisruptionPolicyServiceName(name), Actions: list(actions...)}
}

func changed(paths ...string) config.Change { return config.Change{Files: config.Set{Changed: paths}} }

func TestPoliciesDetermineActions(t *testing.T) {
	image := config.Step{From: "old", To: "new"}
	keys := config.Set{Added: []string{"key"}}
	nested := operatorv1.NodeDisruptionPolicyConfig{Files: []operatorv1.NodeDisruptionPolicySpecFile{
		onFile("/f1", "None"), onFile("/f1/f2", "Reboot"), onFile("/f1/f2/f3/", "Reload:a.service"),
	}}
	for _, tt := range []struct {
		name   string
		own    operatorv1.NodeDisruptionPolicyConfig
		change config.Change
		want   []string
		drain  bool
	}{
		{"it does nothing without a change", operatorv1.NodeDisruptionPolicyConfig{}, config.Change{}, nil, false},
		{"it reboots for a file without a policy", operatorv1.NodeDisruptionPolicyConfig{}, changed("/etc/a"), []string{"Reboot"}, true},
		{"it reboots for a new file without a policy", operatorv1.NodeDisruptionPolicyConfig{}, config.Change{Files: config.Set{Added: []string{"/etc/a"}}}, []string{"Reboot"}, true},
		{"it does nothing for the pull secret", operatorv1.NodeDisruptionPolicyConfig{}, changed("/var/lib/kubelet/config.json"), []string{"None"}, false},
		{"it does nothing for SSH keys", operatorv1.NodeDisruptionPolicyConfig{}, config.Change{SSHKeys: keys}, []string{"None"}, false},
		{
			"it drops None if there are other actions",
			operatorv1.NodeDisruptionPolicyConfig{},
			config.Change{Files: config.Set{Added: []string{"/etc/containers/policy.json"}, Changed: []string{"/var/lib/kubelet/config.json"}}, SSHKeys: keys},
			[]string{"Reload:crio.service"},
			false,
		},
		{
			"it only reboots if the image changes along with files",
			operatorv1.NodeDisruptionPolicyConfig{},
			config.Change{Files: config.Set{Changed: []string{"/etc/containers/registries.conf"}}, OSImage: image, SSHKeys: keys},
			[]string{"Reboot"},
			true,
		},
		{
			"it restarts services for the user CA bundle",
			operatorv1.NodeDisruptionPolicyConfig{},
			changed("/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt"),
			[]string{"Restart:coreos-update-ca-trust.service", "Restart:crio.service"},
			false,
		},
		{"it drains if the registries change", operatorv1.NodeDisruptionPolicyConfig{}, changed("/etc/containers/registries.conf"), []string{"Reload:crio.service"}, true},
		{"it reboots for a kernel argument", operatorv1.NodeDisruptionPolicyConfig{}, config.Change{KernelArguments: config.Set{Added: []string{"a"}}}, []string{"Reboot"}, true},
		{"it reboots if the order of kernel arguments changes", operatorv1.NodeDisruptionPolicyConfig{}, config.Change{KernelArguments: config.Set{Changed: []string{"a", "b"}}}, []string{"Reboot"}, true},
		{"it reboots for another kernel", operatorv1.NodeDisruptionPolicyConfig{}, config.Change{KernelType: config.Step{To: "realtime"}}, []string{"Reboot"}, true},
		{"it reboots for FIPS mode", operatorv1.NodeDisruptionPolicyConfig{}, config.Change{FIPS: true}, []string{"Reboot"}, true},
		{"it reboots for an extension", operatorv1.NodeDisruptionPolicyConfig{}, config.Change{Extensions: config.Set{Removed: []string{"a"}}}, []string{"Reboot"}, true},

		{"it uses the policy of the nearest folder", nested, changed("/f1/f2/example"), []string{"Reboot"}, true},
		{"it uses the policy of the file", nested, changed("/f1/f2/f3"), []string{"Reload:a.service"}, false},
		{"it uses the policy of a folder with a slash at its end", nested, changed("/f1/f2/f3/a"), []string{"Reload:a.service"}, false},
		{"it uses the policy of the first folder", nested, changed("/f1/other"), []string{"None"}, false},
		{"it compares whole names in paths", nested, changed("/f1x"), []string{"Reboot"}, true},
		{"it accepts a policy for all files", operatorv1.NodeDisruptionPolicyConfig{Files: []operatorv1.NodeDisruptionPolicySpecFile{onFile("/", "None")}}, changed("/etc/a"), []string{"None"}, false},

		{
			"it keeps the order of a unit's actions",
			operatorv1.NodeDisruptionPolicyConfig{Units: []operatorv1.NodeDisruptionPolicySpecUnit{onUnit("foo.service", "DaemonReload", "Restart:foo.service")}},
			config.Change{Units: config.Set{Changed: []string{"foo.service"}}},
			[]string{"DaemonReload", "Restart:foo.service"},
			false,
		},
		{
			"it uses the policy for a removed unit",
			operatorv1.NodeDisruptionPolicyConfig{Units: []operatorv1.NodeDisruptionPolicySpecUnit{onUnit("foo.service", "Drain", "DaemonReload")}},
			config.Change{Units: config.Set{Removed: []string{"foo.service"}}},
			[]string{"Drain", "DaemonReload"},
			true,
		},
		{"it reboots for a unit without a policy", operatorv1.NodeDisruptionPolicyConfig{}, config.Change{Units: config.Set{Changed: []string{"foo.service"}}}, []string{"Reboot"}, true},
		{
			"it orders actions by files, units and keys, and keeps repetitions",
			operatorv1.NodeDisruptionPolicyConfig{
				Files:  []operatorv1.NodeDisruptionPolicySpecFile{onFile("/b", "Restart:b.service"), onFile("/a", "Reload:a.service", "Restart:b.service")},
				Units:  []operatorv1.NodeDisruptionPolicySpecUnit{onUnit("foo.service", "DaemonReload")},
				SSHKey: operatorv1.NodeDisruptionPolicySpecSSHKey{Actions: list("Restart:ssh.service")},
			},
			config.Change{Files: config.Set{Added: []string{"/b"}, Removed: []string{"/a"}}, Units: config.Set{Added: []string{"foo.service"}}, SSHKeys: keys},
			[]string{"Reload:a.service", "Restart:b.service", "Restart:b.service", "DaemonReload", "Restart:ssh.service"},
			false,
		},
		{
			"it replaces the default for the same path",
			operatorv1.NodeDisruptionPolicyConfig{Files: []operatorv1.NodeDisruptionPolicySpecFile{onFile("/var/lib/kubelet/config.json", "Reboot")}},
			changed("/var/lib/kubelet/config.json"),
			[]string{"Reboot"},
			true,
		},
		{
			"it replaces the default for SSH keys",
			operatorv1.NodeDisruptionPolicyConfig{SSHKey: operatorv1.NodeDisruptionPolicySpecSSHKey{Actions: list("Drain")}},
			config.Change{SSHKeys: keys},
			[]string{"Drain"},
			true,
		},
		{
			"it reboots for an unknown action",
			operatorv1.NodeDisruptionPolicyConfig{Files: []operatorv1.NodeDisruptionPolicySpecFile{onFile("/a", "Future", "None")}},
			changed("/a"),
			[]string{"Reboot"},
			true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			decision := disruption.Decide(tt.change, disruption.Policies(tt.own))
			assert.Equal(t, tt.want, words(decision.Actions))
			assert.Equal(t, tt.drain, decision.Drain)
		})
	}
	t.Run("it reboots for keys without any policies", func(t *testing.T) {
		decision := disruption.Decide(config.Change{SSHKeys: keys}, operatorv1.NodeDisruptionPolicyClusterStatus{})
		assert.Equal(t, []string{"Reboot"}, words(decision.Actions))
	})
}

func TestPoliciesWithoutEffectAreReported(t *testing.T) {
	own := operatorv1.NodeDisruptionPolicyConfig{}
	for _, name := range []string{"/etc/motd", "etc/issue", "/etc/issue", "/etc/motd/"} {
		own.Files = append(own.Files, operatorv1.NodeDisruptionPolicySpecFile{Path: name})
	}
	assert.Equal(t, []string{
		`spec.nodeDisruptionPolicy.files[0].path is "/etc/motd", the same path as that of a later policy: remove one of the two`,
		`spec.nodeDisruptionPolicy.files[1].path is "etc/issue": use an absolute path`,
	}, disruption.Invalid(own))
	var names []string
	for _, file := range disruption.Policies(own).Files[len(disruption.Default().Files):] {
		names = append(names, file.Path)
	}
	assert.Equal(t, []string{"/etc/issue", "/etc/motd"}, names, "the API server rejects a status that has a path twice")
	assert.Empty(t, disruption.Invalid(operatorv1.NodeDisruptionPolicyConfig{}))
}

func TestDefaultPolicyForAMissingServiceRequiresAReboot(t *testing.T) {
	own := operatorv1.NodeDisruptionPolicyConfig{Files: []operatorv1.NodeDisruptionPolicySpecFile{
		onFile("/etc/own", "Reload:crio.service"),
		onFile("/etc/crio/policies", "Reload:crio.service"), // the same as the default
	}}
	for path, want := range map[string][]string{
		"/etc/containers/policy.json":                    {"Reboot"},
		"/etc/containers/registries.conf":                {"Reboot"},
		"/etc/kubernetes/credential-providers/some.yaml": {"Restart:kubelet.service"},
		"/etc/own":                     {"Reload:crio.service"},
		"/etc/crio/policies":           {"Reload:crio.service"},
		"/var/lib/kubelet/config.json": {"None"},
	} {
		policies, err := disruption.ForHost(own, func(a disruption.Action) (bool, error) {
			return a.Reload == nil && (a.Restart == nil || a.Restart.ServiceName == "kubelet.service"), nil
		})
		require.NoError(t, err)
		assert.Equal(t, want, words(disruption.Decide(changed(path), policies).Actions), path)
	}
	_, err := disruption.ForHost(own, func(disruption.Action) (bool, error) { return false, assert.AnError })
	require.ErrorIs(t, err, assert.AnError)
}
