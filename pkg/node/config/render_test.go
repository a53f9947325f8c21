package config_test

import (
	"encoding/json"
	"slices"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/config"
)

func TestRenderMergesInOrder(t *testing.T) {
	on, off := true, false
	for _, tt := range []struct {
		name    string
		configs []*mcfgv1.MachineConfig
		check   func(*testing.T, config.Content)
	}{
		{
			"it lets a custom pool override the workers, regardless of names",
			[]*mcfgv1.MachineConfig{
				role("infra", "ccc", files(file("/etc/2", "new"))),
				worker("ddd", files(zipped(t, "/etc/2", "old"))),
				worker("bbb", files(file("/etc/1", "new"))),
				worker("aaa", files(file("/etc/1", "old"))),
			},
			func(t *testing.T, c config.Content) {
				assert.Equal(t, []config.File{{Path: "/etc/1", Mode: 0o644, Data: []byte("new")}, {Path: "/etc/2", Mode: 0o644, Data: []byte("new")}}, c.Files)
			},
		},
		{
			"it decompresses data of a later config",
			[]*mcfgv1.MachineConfig{worker("a", files(file("/etc/1", "old"))), worker("b", files(zipped(t, "/etc/1", "new")))},
			func(t *testing.T, c config.Content) { assert.Equal(t, "new", string(c.Files[0].Data)) },
		},
		{
			"it keeps the compression of contents that a later config does not replace",
			[]*mcfgv1.MachineConfig{worker("a", files(zipped(t, "/etc/1", "text"))), worker("b", files(`{"path": "/etc/1", "contents": {"compression": ""}}`))},
			func(t *testing.T, c config.Content) { assert.Equal(t, "text", string(c.Files[0].Data)) },
		},
		{
			"it merges the fields of a file",
			[]*mcfgv1.MachineConfig{
				worker("a", files(`{"path": "/etc/1", "mode": 384, "user": {"id": 7}, "group": {"name": "wheel"}, "contents": {"source": "data:,text"}}`)),
				worker("b", files(`{"path": "/etc/1", "user": {"name": "core"}, "overwrite": false}`)),
			},
			func(t *testing.T, c config.Content) {
				assert.Equal(t, []config.File{{
					Path: "/etc/1", Mode: 0o600, User: config.Owner{Name: "core"}, Group: config.Owner{Name: "wheel"}, Data: []byte("text"),
				}}, c.Files)
			},
		},
		{
			"it accepts a file whose contents come from another config",
			[]*mcfgv1.MachineConfig{worker("a", files(`{"path": "/etc/1", "mode": 256}`)), worker("b", files(file("/etc/1", "text")))},
			func(t *testing.T, c config.Content) { assert.EqualValues(t, 0o400, c.Files[0].Mode) },
		},
		{
			"it merges the fields and the drop-ins of a unit",
			[]*mcfgv1.MachineConfig{
				worker("a", units(`{"name": "a.service", "enabled": true, "contents": "[Unit]", "dropins": [{"name": "20.conf", "contents": "[Unit]"}, {"name": "30.conf", "contents": "[Unit]"}]}`)),
				worker("b", units(`{"name": "a.service", "mask": false, "dropins": [{"name": "10.conf", "contents": "[Service]"}, {"name": "20.conf", "contents": "[Service]"}, {"name": "30.conf", "contents": ""}]}`)),
			},
			func(t *testing.T, c config.Content) {
				assert.Equal(t, []config.Unit{{
					Name: "a.service", Contents: "[Unit]", Enabled: &on, Mask: &off, DropIns: []config.DropIn{{"10.conf", "[Service]"}, {"20.conf", "[Service]"}},
				}}, c.Units)
			},
		},
		{
			"it joins SSH keys",
			[]*mcfgv1.MachineConfig{worker("a", keys("ssh-rsa B", "ssh-rsa A")), worker("b", keys("ssh-rsa C", "ssh-rsa B"))},
			func(t *testing.T, c config.Content) {
				assert.Equal(t, []string{"ssh-rsa A", "ssh-rsa B", "ssh-rsa C"}, c.SSHKeys)
			},
		},
		{
			"it enables FIPS if one config does, and uses the last kernel other than the default",
			[]*mcfgv1.MachineConfig{
				spec("97", mcfgv1.MachineConfigSpec{FIPS: true, KernelType: "64k-pages"}),
				spec("98", mcfgv1.MachineConfigSpec{KernelType: "realtime"}),
				spec("99", mcfgv1.MachineConfigSpec{KernelType: "default"}),
			},
			func(t *testing.T, c config.Content) {
				assert.True(t, c.FIPS)
				assert.Equal(t, "realtime", c.KernelType)
			},
		},
		{
			"it concatenates kernel arguments and extensions, with repetitions",
			[]*mcfgv1.MachineConfig{
				spec("02", mcfgv1.MachineConfigSpec{KernelArguments: []string{"b", "a"}, Extensions: []string{"usbguard"}}),
				spec("01", mcfgv1.MachineConfigSpec{KernelArguments: []string{"a"}, Extensions: []string{"ipsec"}}),
			},
			func(t *testing.T, c config.Content) {
				assert.Equal(t, []string{"a", "b", "a"}, c.KernelArguments)
				assert.Equal(t, []string{"ipsec", "usbguard"}, c.Extensions)
			},
		},
		{
			"it uses the image of the release",
			[]*mcfgv1.MachineConfig{worker("a", "")},
			func(t *testing.T, c config.Content) { assert.Equal(t, "registry.example/os@sha256:release", c.OSImage) },
		},
		{
			"it lets only a user's config replace the image",
			[]*mcfgv1.MachineConfig{
				spec("1", mcfgv1.MachineConfigSpec{OSImageURL: "first"}),
				spec("2", mcfgv1.MachineConfigSpec{OSImageURL: "last"}),
				generated(spec("3", mcfgv1.MachineConfigSpec{OSImageURL: "earlier"})),
			},
			func(t *testing.T, c config.Content) { assert.Equal(t, "last", c.OSImage) },
		},
		{
			"it translates older versions of Ignition",
			[]*mcfgv1.MachineConfig{spec("a", mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(
				`{"ignition": {"version": "3.0.0"}, "storage": {"files": [{"path": "/a", "contents": {"source": "data:,a"}}]}, "systemd": {"units": [{"name": "a.service", "enabled": false}]}}`,
			)}})},
			func(t *testing.T, c config.Content) {
				assert.Equal(t, "/a", c.Files[0].Path)
				assert.Equal(t, &off, c.Units[0].Enabled)
			},
		},
		{
			"it accepts configs without content",
			[]*mcfgv1.MachineConfig{
				spec("a", mcfgv1.MachineConfigSpec{}), worker("b", ""),
				spec("c", mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte("null")}}),
				spec("d", mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte("{}")}}),
			},
			func(t *testing.T, c config.Content) {
				assert.Equal(t, config.Content{OSImage: "registry.example/os@sha256:release", KernelArguments: []string{}, Extensions: []string{}}, c)
			},
		},
		{
			"it accepts a unit that enables a file",
			[]*mcfgv1.MachineConfig{worker("a", files(file("/etc/systemd/system/a.service", "[Unit]"))+","+units(`{"name": "a.service", "enabled": true, "contents": ""}`))},
			func(t *testing.T, c config.Content) { assert.Empty(t, c.Units[0].Contents) },
		},
		{
			"it accepts empty sections that it does not support",
			[]*mcfgv1.MachineConfig{worker("a", `"kernelArguments": {}, "passwd": {"groups": []}, "storage": {"disks": null, "files": [{"path": "/a", "contents": {"source": "", "verification": {}}}]}`)},
			func(t *testing.T, c config.Content) {
				assert.Equal(t, []config.File{{Path: "/a", Mode: 0o644, Data: []byte{}}}, c.Files)
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.check(t, content(t, tt.configs...)) })
	}
}

func TestRenderedNameDependsOnlyOnContent(t *testing.T) {
	first := worker("50-a", files(file("/etc/1", "old"), file("/etc/2", "text")))
	second := worker("50-b", files(file("/etc/1", "new"))+", "+units(`{"name": "a.service", "mask": true}`, `{"name": "b.service", "mask": true}`))
	before := render(t, first, second)
	assert.Equal(t, "rendered-infra-e93b42ee5afb654a02030d6618105921", before.Name, "a changed name is an update of all nodes")

	for _, tt := range []struct {
		name    string
		configs []*mcfgv1.MachineConfig
	}{
		{"it ignores the order of the list", []*mcfgv1.MachineConfig{second, first}},
		{"it ignores names, white space and the order of files and units", []*mcfgv1.MachineConfig{
			worker("60", files(file("/etc/2", "text"))+`,     "systemd": {}`),
			worker("70", units(`{"name": "b.service", "mask": true}`, `{"name": "a.service", "mask": true}`)),
			worker("80", files(file("/etc/1", "new"))),
		}},
		{"it ignores the version of the controller", []*mcfgv1.MachineConfig{generated(first.DeepCopy()), second}},
		{"it does not change its own result", []*mcfgv1.MachineConfig{before}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, before.Name, render(t, tt.configs...).Name)
			assert.Equal(t, before.Spec, render(t, tt.configs...).Spec)
		})
	}
	t.Run("it changes with the content, and changes back", func(t *testing.T) {
		edited := worker("50-b", files(file("/etc/1", "newer"))+", "+units(`{"name": "a.service", "mask": true}`, `{"name": "b.service", "mask": true}`))
		assert.NotEqual(t, before.Name, render(t, first, edited).Name)
		assert.Equal(t, before.Name, render(t, first, second).Name)
	})
	t.Run("it depends on the order of kernel arguments", func(t *testing.T) {
		assert.NotEqual(t, render(t, spec("a", mcfgv1.MachineConfigSpec{KernelArguments: []string{"a", "b"}})).Name,
			render(t, spec("a", mcfgv1.MachineConfigSpec{KernelArguments: []string{"b", "a"}})).Name)
	})
	t.Run("it depends on the image", func(t *testing.T) {
		other, err := config.Render("infra", []*mcfgv1.MachineConfig{first, second}, "other")
		require.NoError(t, err)
		assert.NotEqual(t, before.Name, other.Name)
	})
}

func TestRenderSetsDefaultsAndAnnotations(t *testing.T) {
	configs := []*mcfgv1.MachineConfig{
		worker("b", files(file("/etc/1", "new"))+", "+keys("b", "a")), worker("a", files(file("/etc/1", "old"))),
		generated(spec("c", mcfgv1.MachineConfigSpec{OSImageURL: "earlier", BaseOSExtensionsContainerImage: "earlier"})),
	}
	copies := slices.Clone(configs)
	for i := range copies {
		copies[i] = copies[i].DeepCopy()
	}
	rendered := render(t, configs...)
	assert.Equal(t, copies, configs, "the inputs stay as they are")
	assert.Contains(t, string(rendered.Spec.Config.Raw), `"overwrite":true`)
	assert.NotContains(t, string(rendered.Spec.Config.Raw), `"overwrite":false`)
	assert.Equal(t, "default", rendered.Spec.KernelType)
	assert.Empty(t, rendered.Spec.BaseOSExtensionsContainerImage)
	assert.NotContains(t, rendered.Annotations, api.OSImageOverriddenAnnotation)

	configs = append(configs, spec("d", mcfgv1.MachineConfigSpec{OSImageURL: "own", BaseOSExtensionsContainerImage: "own"}))
	rendered = render(t, configs...)
	assert.Equal(t, "true", rendered.Annotations[api.OSImageOverriddenAnnotation])
	assert.Equal(t, "own", rendered.Spec.BaseOSExtensionsContainerImage)
	assert.Equal(t, metav1.TypeMeta{APIVersion: "machineconfiguration.openshift.io/v1", Kind: "MachineConfig"}, rendered.TypeMeta)
}

func TestPoolWithoutConfigsIsAnError(t *testing.T) {
	_, err := config.Render("infra", nil, "")
	assert.ErrorIs(t, err, config.ErrNoConfigs)
}

func TestChangedContentIsRefused(t *testing.T) {
	rendered := render(t, worker("a", units(`{"name": "a.service", "contents": "[Unit]\nDescription=<a>"}`)))
	var tree any
	require.NoError(t, json.Unmarshal(rendered.Spec.Config.Raw, &tree))
	var err error
	rendered.Spec.Config.Raw, err = json.MarshalIndent(tree, "", " ") // sorts the keys, as the API server does
	require.NoError(t, err)
	_, err = config.Decode(rendered)
	require.NoError(t, err)

	rendered.Spec.KernelArguments = append(rendered.Spec.KernelArguments, "quiet")
	_, err = config.Decode(rendered)
	require.ErrorContains(t, err, "spec was changed after the controller rendered it")
}
