package config_test

import (
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/node/config"
)

func TestDifferenceListsChanges(t *testing.T) {
	for _, tt := range []struct {
		name     string
		from, to []*mcfgv1.MachineConfig
		want     config.Change
	}{
		{
			"it is empty for the same content in another form",
			[]*mcfgv1.MachineConfig{worker("a", files(file("/b", "text"), zipped(t, "/a", "text"))+","+keys("b", "a"))},
			[]*mcfgv1.MachineConfig{worker("c", files(`{"path": "/a", "mode": 420, "contents": {"source": "data:,text"}}`)+","+keys("a")), worker("b", files(file("/b", "text"))+","+keys("b"))},
			config.Change{},
		},
		{
			"it lists files, changed by data, mode or owner",
			[]*mcfgv1.MachineConfig{worker("a", files(file("/same", ""), file("/gone", ""), file("/data", "old"), file("/mode", ""), file("/owner", "")))},
			[]*mcfgv1.MachineConfig{
				worker("a", files(file("/same", ""), file("/new", ""), file("/data", "new"), file("/mode", ""), file("/owner", ""))),
				worker("b", files(`{"path": "/mode", "mode": 256}`, `{"path": "/owner", "group": {"name": "wheel"}}`)),
			},
			config.Change{Files: config.Set{Added: []string{"/new"}, Changed: []string{"/data", "/mode", "/owner"}, Removed: []string{"/gone"}}},
		},
		{
			"it lists units, changed by their contents, state or drop-ins",
			[]*mcfgv1.MachineConfig{worker("a", units(`{"name": "same.service", "enabled": true}`, `{"name": "gone.service"}`, `{"name": "text.service"}`, `{"name": "on.service"}`, `{"name": "drop.service"}`))},
			[]*mcfgv1.MachineConfig{worker("a", units(`{"name": "same.service", "enabled": true}`, `{"name": "new.service"}`, `{"name": "text.service", "contents": "[Unit]"}`,
				`{"name": "on.service", "enabled": false}`, `{"name": "drop.service", "dropins": [{"name": "a.conf", "contents": "[Unit]"}]}`))},
			config.Change{Units: config.Set{Added: []string{"new.service"}, Changed: []string{"drop.service", "on.service", "text.service"}, Removed: []string{"gone.service"}}},
		},
		{
			"it lists keys",
			[]*mcfgv1.MachineConfig{worker("a", keys("b", "a"))},
			[]*mcfgv1.MachineConfig{worker("a", keys("c", "b"))},
			config.Change{SSHKeys: config.Set{Added: []string{"c"}, Removed: []string{"a"}}},
		},
		{
			"it counts repeated kernel arguments",
			[]*mcfgv1.MachineConfig{spec("a", mcfgv1.MachineConfigSpec{KernelArguments: []string{"a", "b", "a", "c"}})},
			[]*mcfgv1.MachineConfig{spec("a", mcfgv1.MachineConfigSpec{KernelArguments: []string{"b", "a", "d", "b"}})},
			config.Change{KernelArguments: config.Set{Added: []string{"b", "d"}, Removed: []string{"a", "c"}}},
		},
		{
			"it reports another order of kernel arguments",
			[]*mcfgv1.MachineConfig{spec("a", mcfgv1.MachineConfigSpec{KernelArguments: []string{"b", "a"}})},
			[]*mcfgv1.MachineConfig{spec("a", mcfgv1.MachineConfigSpec{KernelArguments: []string{"a", "b"}})},
			config.Change{KernelArguments: config.Set{Changed: []string{"a", "b"}}},
		},
		{
			"it reports the image, the kernel, FIPS mode and extensions",
			[]*mcfgv1.MachineConfig{worker("a", "")},
			[]*mcfgv1.MachineConfig{spec("a", mcfgv1.MachineConfigSpec{OSImageURL: "own", KernelType: "realtime", FIPS: true, Extensions: []string{"ipsec"}})},
			config.Change{
				OSImage: config.Step{From: "registry.example/os@sha256:release", To: "own"}, KernelType: config.Step{To: "realtime"}, FIPS: true,
				Extensions: config.Set{Added: []string{"ipsec"}},
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			change := config.Difference(content(t, tt.from...), content(t, tt.to...))
			assert.Equal(t, tt.want, change)
		})
	}
	t.Run("it lists everything for a new host", func(t *testing.T) {
		change := config.Difference(config.Content{}, content(t, worker("a", files(file("/a", ""))+","+keys("a"))))
		assert.Equal(t, []string{"/a"}, change.Files.All())
		assert.Equal(t, config.Step{To: "registry.example/os@sha256:release"}, change.OSImage)
		assert.Zero(t, change.KernelType)
	})
}
