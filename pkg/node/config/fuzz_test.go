package config_test

import (
	"path"
	"strings"
	"testing"
	"testing/synctest"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cluster-version/cvo/pkg/node/config"
)

// FuzzRender checks that an accepted Ignition config decodes to safe paths within the limit, that its rendering is stable, and that a rejected
// one has an error for an administrator. It runs in a bubble, which fails if a goroutine outlives a validation.
//
//threat:machineconfig-names
//threat:machineconfig-sources
//threat:machineconfigs
func FuzzRender(f *testing.F) {
	for _, sections := range []string{
		"", files(file("/etc/a", "text")), files(zipped(f, "/etc/a", "text")), units(`{"name": "a@b.service", "enabled": true, "contents": "[Install]\nWantedBy=a"}`),
		units(`{"name": "base.service", "mask": false, "dropins": [{"name": "a.conf", "contents": "[Unit]"}]}`), keys("ssh-rsa A"),
		files(`{"path": "/etc/base/a"}`), files(`{"path": "/etc/base", "mode": 256, "user": {"name": "core"}}`), files(`{"path": "/../a", "contents": {"source": "data:;x=%,"}}`),
		`"storage": {"links": [{"path": "/etc", "target": "/tmp"}], "luks": [{}], "disks": [{}], "raid": [{}], "filesystems": [{}], "directories": [{}]}`,
		`"passwd": {"groups": [{}], "users": [{}]}`, `"kernelArguments": {"shouldExist": [""]}`,
	} {
		f.Add(worker("", sections).Spec.Config.Raw)
		f.Add([]byte(strings.Replace(string(worker("", sections).Spec.Config.Raw), "3.5.0", "3.0.0", 1)))
	}
	for _, raw := range []string{"null", " ", "[]", `{"ignition": {"version": "2.2.0"}}`, `{"ignition": {"version": "3.4.0", "config": {"replace": {"source": "data:,"}}}}`} {
		f.Add([]byte(raw))
	}
	base := worker("10-base", files(file("/etc/base", "text"))+","+units(`{"name": "base.service", "contents": "[Unit]"}`)+","+keys("ssh-rsa B"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		synctest.Test(t, func(t *testing.T) {
			configs := []*mcfgv1.MachineConfig{base, spec("50-fuzz", mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}})}
			rendered, err := config.Render("worker", configs, "os")
			if err != nil {
				var reason *config.Error
				require.ErrorAs(t, err, &reason)
				assert.True(t, strings.HasPrefix(strings.TrimPrefix(reason.Path, `"`), "spec.config"))
				assert.NotEmpty(t, reason.Name)
				assert.NotEmpty(t, reason.Problem)
				assert.NotEmpty(t, reason.Remedy)
				assert.NotContains(t, err.Error(), "\n")
				assert.Less(t, len(err.Error()), 2000)
				return
			}
			decoded, err := config.Decode(rendered)
			require.NoError(t, err)
			again, err := config.Render("worker", []*mcfgv1.MachineConfig{rendered}, "os")
			require.NoError(t, err)
			assert.Equal(t, rendered.Name, again.Name)
			assert.Zero(t, config.Difference(decoded, decoded))

			size, seen := 0, map[string]bool{}
			for _, file := range decoded.Files {
				size += len(file.Data)
				assert.True(t, path.IsAbs(file.Path) && path.Clean(file.Path) == file.Path && file.Path != "/", "%q", file.Path)
				assert.NotContains(t, file.Path, "\x00")
				assert.Zero(t, file.Mode&^0o777)
				seen[file.Path] = true
			}
			assert.LessOrEqual(t, size, 16<<20)
			for name := range seen {
				for parent := path.Dir(name); parent != "/"; parent = path.Dir(parent) {
					assert.False(t, seen[parent], "%q is below %q", name, parent)
					assert.NotContains(t, []string{"/proc", "/sys", "/dev", "/run", "/tmp"}, parent)
				}
			}
			for _, unit := range decoded.Units {
				assert.Equal(t, unit.Name, path.Base(path.Clean("/"+unit.Name)))
				for _, dropIn := range unit.DropIns {
					assert.Equal(t, dropIn.Name, path.Base(path.Clean("/"+dropIn.Name)))
				}
			}
		})
	})
}
