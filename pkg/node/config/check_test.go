package config_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cluster-version/cvo/pkg/node/config"
)

// TestHostileConfigsAreRejected runs in a bubble, which fails if a goroutine outlives a validation.
//
//threat:machineconfig-names
//threat:machineconfig-unsupported
//threat:machineconfig-sources
func TestHostileConfigsAreRejected(t *testing.T) {
	raw := func(text string) *mcfgv1.MachineConfig {
		return spec("50-bad", mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(text)}})
	}
	bad := func(sections string) *mcfgv1.MachineConfig { return worker("50-bad", sections) }
	for _, tt := range []struct {
		name string
		mc   *mcfgv1.MachineConfig
		// path is that of the error without "spec.", problem is a part of its text.
		path, problem string
	}{
		{"it rejects a config that is not JSON", raw(`{"ignition"`), "config", "does not parse"},
		{"it rejects a config that is not an object", raw(`[1]`), "config.ignition.version", "is missing"},
		{"it rejects a config without a version", raw(`{"storage": {}}`), "config.ignition.version", "is missing; set it to 3.5.0"},
		{"it rejects Ignition 2", raw(`{"ignition": {"version": "2.2.0"}, "storage": {"files": [{"filesystem": "root", "path": "/a"}]}}`), "config.ignition.version", `is "2.2.0", but only 3.0.0 to 3.5.0`},
		{"it rejects a later version", raw(`{"ignition": {"version": "3.6.0"}}`), "config.ignition.version", "convert the config to 3.5.0"},
		{"it rejects a version that is not text", raw(`{"ignition": {"version": 3}}`), "config.ignition.version", "is missing"},
		{"it rejects deep nesting", raw(`{"ignition": {"version": "3.5.0"}, "storage": ` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "}"), "config", "does not parse"},

		{"it rejects an unknown field", bad(files(file("/a", ""), `{"path": "/b", "content": "text"}`)), "config.storage.files[1].content", "is not a field of Ignition"},
		{"it rejects a field in another case", bad(`"Storage": {}`), "config.Storage", "is not a field of Ignition"},
		{"it rejects a field with control characters", bad(`"a\nb": 1`), `"spec.config.a\nb"`, "is not a field of Ignition"},
		{"it rejects a long field", bad(`"` + strings.Repeat("a", 1000) + `": 1`), `"spec.config.` + strings.Repeat("a", 188) + `"…`, "is not a field of Ignition"},
		{"it rejects a field that occurs twice", bad(`"storage": {}, "storage": {}`), "config.storage", "occurs more than once"},
		{"it rejects a value of another type", bad(files(`{"path": "/a", "mode": "0644"}`)), "config.storage.files[0].mode", "has a value of another type"},
		{"it rejects a mode with a fraction", bad(files(`{"path": "/a", "mode": 1.5}`)), "config.storage.files[0].mode", "has a value of another type"},
		{"it rejects a large number", bad(files(`{"path": "/a", "mode": 18446744073709551615}`)), "config.storage.files[0].mode", "has a value of another type"},
		{"it rejects a text in place of contents", bad(files(file("/a", ""), `{"path": "/b", "contents": "text"}`)), "config.storage.files[1].contents", "has a value of another type"},
		{"it rejects a list in place of a path", bad(files(`{"path": ["/a"]}`)), "config.storage.files.path", "has a value of another type"},
		{"it rejects a section of another type", bad(`"storage": []`), "config.storage", "has a value of another type"},

		{"it rejects disks", bad(`"storage": {"disks": [{"device": "/dev/sda"}]}`), "config.storage.disks[0].device", "is not supported"},
		{"it rejects RAID", bad(`"storage": {"raid": [{"name": "a", "level": "raid1", "devices": ["/dev/sda"]}]}`), "config.storage.raid[0].devices[0]", "is not supported"},
		{"it rejects file systems", bad(`"storage": {"filesystems": [{"device": "/dev/sda"}]}`), "config.storage.filesystems[0].device", "is not supported"},
		{"it rejects directories", bad(`"storage": {"directories": [{"path": "/a"}]}`), "config.storage.directories[0].path", "is not supported"},
		{"it rejects links", bad(`"storage": {"links": [{"path": "/a", "target": "/b"}]}`), "config.storage.links[0].path", "is not supported"},
		{"it rejects LUKS", bad(`"storage": {"luks": [{"name": "a"}]}`), "config.storage.luks[0].name", "is not supported"},
		{"it rejects groups", bad(`"passwd": {"groups": [{"name": "a"}]}`), "config.passwd.groups[0].name", "is not supported"},
		{"it rejects Ignition's kernel arguments", bad(`"kernelArguments": {"shouldExist": ["a"]}`), "config.kernelArguments.shouldExist[0]", "is not supported"},
		{"it rejects a reference to another config", raw(`{"ignition": {"version": "3.5.0", "config": {"merge": [{"source": "https://a.example"}]}}}`), "config.ignition.config.merge[0].source", "is not supported"},
		{"it rejects Ignition's certificates", raw(`{"ignition": {"version": "3.5.0", "security": {"tls": {"certificateAuthorities": [{"source": "data:,"}]}}}}`), "config.ignition.security.tls.certificateAuthorities[0].source", "is not supported"},
		{"it rejects appended contents", bad(files(`{"path": "/a", "append": [{"source": "data:,"}]}`)), "config.storage.files[0].append[0].source", "is not supported"},
		{"it rejects a hash", bad(files(`{"path": "/a", "contents": {"source": "data:,", "verification": {"hash": "sha256-00"}}}`)), "config.storage.files[0].contents.verification.hash", "is not supported"},

		{"it rejects another user", bad(`"passwd": {"users": [{"name": "root", "sshAuthorizedKeys": ["a"]}]}`), "config.passwd.users[0].name", `is "root"`},
		{"it rejects a password", bad(`"passwd": {"users": [{"name": "core", "passwordHash": "a"}]}`), "config.passwd.users[0].passwordHash", "is not supported"},
		{"it rejects a key with a second line", bad(keys("ssh-rsa A", "ssh-rsa B\nssh-rsa C")), "config.passwd.users[0].sshAuthorizedKeys[1]", "one line"},
		{"it rejects an empty key", bad(keys(" ")), "config.passwd.users[0].sshAuthorizedKeys[0]", "one line"},

		{"it rejects a relative path", bad(files(file("etc/a", ""))), "config.storage.files[0].path", "is invalid: path not absolute"},
		{"it rejects a path with double dots", bad(files(file("/etc/../a", ""))), "config.storage.files[0].path", "is invalid: path is not fully simplified"},
		{"it rejects the root folder", bad(files(file("/", ""))), "config.storage.files[0].path", "is the root folder"},
		{"it rejects a path with NUL", bad(files(`{"path": "/a\u0000b"}`)), "config.storage.files[0].path", `is "/a\x00b"`},
		{"it rejects a path with a new line", bad(files(`{"path": "/a\nb"}`)), "config.storage.files[0].path", "control characters"},
		{"it rejects a long path", bad(files(file(strings.Repeat("/a", 2048), ""))), "config.storage.files[0].path", "is too long"},
		{"it rejects a long name in a path", bad(files(file("/"+strings.Repeat("a", 256), ""))), "config.storage.files[0].path", "is too long"},
		{"it rejects a duplicate path", bad(files(file("/a", ""), file("/a", ""))), "config.storage.files[1]", "duplicate entry"},
		{"it rejects a file below another", bad(files(file("/a/b/c", ""), file("/a", ""))), "config.storage.files[0]", `is "/a/b/c", below the file "/a" of MachineConfig 50-bad`},
		{"it rejects a file in place of a unit", bad(files(file("/etc/systemd/system/a.service", "")) + "," + units(`{"name": "a.service", "contents": "[Unit]"}`)), "config.systemd.units[0]", "the same file on a host as spec.config.storage.files[0]"},
		{"it rejects a file in place of a folder of drop-ins", bad(files(file("/etc/systemd/system/a.service.d", "")) + "," + units(`{"name": "a.service", "dropins": [{"name": "a.conf", "contents": "[Unit]"}]}`)), "config.systemd.units[0].dropins[0]", "below the file"},
		{"it rejects /proc", bad(files(file("/proc/sys/vm/swappiness", ""))), "config.storage.files[0].path", "do not survive a reboot"},
		{"it rejects /sys", bad(files(file("/sys/power/state", ""))), "config.storage.files[0].path", "files in /sys"},
		{"it rejects /dev", bad(files(file("/dev/sda", ""))), "config.storage.files[0].path", "files in /dev"},
		{"it rejects /run", bad(files(file("/run", ""))), "config.storage.files[0].path", "files in /run"},
		{"it rejects /tmp", bad(files(file("/tmp/a", ""))), "config.storage.files[0].path", "files in /tmp"},
		{"it rejects the folder of the node stage", bad(files(file("/var/lib/cvo-node/record", ""))), "config.storage.files[0].path", "keeps its own files in /var/lib/cvo-node"},
		{"it rejects a file of the guard", bad(files(file("/etc/systemd/system/sysinit.target.wants/cvo-node-guard.service", ""))), "config.storage.files[0].path", "belongs to the node stage"},
		{"it rejects a file of the service that changes the host", bad(files(file("/usr/lib/systemd/system/cvo-node-apply.service", ""))), "config.storage.files[0].path", "cvo-node-apply.service belongs to the node stage"},
		{"it rejects the service that changes the host", bad(units(`{"name": "cvo-node-apply.service", "dropins": [{"name": "a.conf", "contents": "[Unit]"}]}`)), "config.systemd.units[0].name", "belongs to the node stage"},
		{"it rejects the guard", bad(units(`{"name": "cvo-node-guard.service", "mask": true}`)), "config.systemd.units[0].name", "belongs to the node stage"},

		{"it rejects setuid", bad(files(`{"path": "/a", "mode": 2541}`)), "config.storage.files[0].mode", "octal 04755"},
		{"it rejects setgid", bad(files(`{"path": "/a", "mode": 1517}`)), "config.storage.files[0].mode", "octal 02755"},
		{"it rejects an octal mode that is written as a decimal number", bad(files(`{"path": "/a", "mode": 644}`)), "config.storage.files[0].mode", "such as 420 for 0644"},
		{"it rejects a negative mode", bad(files(`{"path": "/a", "mode": -1}`)), "config.storage.files[0].mode", "is -1"},
		{"it rejects a negative owner", bad(files(`{"path": "/a", "user": {"id": -1}}`)), "config.storage.files[0].user.id", "is -1"},
		{"it rejects an owner that is too large", bad(files(`{"path": "/a", "group": {"id": 4294967295}}`)), "config.storage.files[0].group.id", "is 4294967295"},
		{"it rejects an owner with two names", bad(files(`{"path": "/a", "user": {"id": 1, "name": "core"}}`)), "config.storage.files[0].user", "is invalid"},

		{"it rejects a remote source", bad(files(`{"path": "/a", "contents": {"source": "https://a.example/b"}}`)), "config.storage.files[0].contents", `"https://a.example/b" is not a data URL`},
		{"it rejects a data URL without data", bad(files(`{"path": "/a", "contents": {"source": "data:text/plain"}}`)), "config.storage.files[0].contents", "not a valid data URL"},
		{"it rejects invalid base64", bad(files(`{"path": "/a", "contents": {"source": "data:;base64,*"}}`)), "config.storage.files[0].contents", "does not decode"},
		{"it rejects an invalid escape", bad(files(`{"path": "/a", "contents": {"source": "data:,%zz"}}`)), "config.storage.files[0].contents", "does not decode"},
		{"it rejects an invalid escape in a parameter", bad(files(`{"path": "/a", "contents": {"source": "data:text/plain;a=%z,b"}}`)), "config.storage.files[0].contents", "not a valid data URL"},
		{"it rejects an invalid quote in a parameter", bad(files(`{"path": "/a", "contents": {"source": "data:text/plain;a=\"\\z\",b"}}`)), "config.storage.files[0].contents", "not a valid data URL"},
		{"it rejects invalid gzip data", bad(files(`{"path": "/a", "contents": {"compression": "gzip", "source": "data:,text"}}`)), "config.storage.files[0].contents", "is not gzip"},
		{"it rejects another compression", bad(files(`{"path": "/a", "contents": {"compression": "zstd", "source": "data:,text"}}`)), "config.storage.files[0].contents.compression", "is invalid"},
		{"it rejects a compression without a source", bad(files(`{"path": "/a", "contents": {"compression": "gzip"}}`)), "config.storage.files[0].contents.compression", "has no source"},
		{"it rejects data that exceeds the limit when decompressed", bad(files(zipped(t, "/a", strings.Repeat("a", 32<<20)))), "config.storage.files[0].contents", "all files together have at most 16777216 bytes"},
		{"it rejects files that together exceed the limit when decompressed", bad(files(zipped(t, "/a", strings.Repeat("a", 15<<20)), zipped(t, "/b", strings.Repeat("a", 2<<20)))), "config.storage.files[1].contents", "all files together have at most 16777216 bytes"},

		{"it rejects a unit in another folder", bad(units(`{"name": "../a.service"}`)), "config.systemd.units[0].name", `is "../a.service"`},
		{"it rejects a unit with an absolute path", bad(units(`{"name": "/etc/a.service"}`)), "config.systemd.units[0].name", `is "/etc/a.service"`},
		{"it rejects a unit with a new line", bad(units(`{"name": "a\n.service"}`)), "config.systemd.units[0].name", "must be a file name"},
		{"it rejects a unit with a long name", bad(units(`{"name": "` + strings.Repeat("a", 250) + `.service"}`)), "config.systemd.units[0].name", "must be a file name"},
		{"it rejects a unit of an unknown type", bad(units(`{"name": "a.conf"}`)), "config.systemd.units[0].name", "is invalid"},
		{"it rejects a drop-in in another folder", bad(units(`{"name": "a.service", "dropins": [{"name": "../../b.conf"}]}`)), "config.systemd.units[0].dropins[0].name", "must be a file name"},
		{"it rejects a unit that does not parse", bad(units(`{"name": "a.service", "contents": "[Unit"}`)), "config.systemd.units[0].contents", "is invalid"},

		{"it rejects an unknown kernel", spec("50-bad", mcfgv1.MachineConfigSpec{KernelType: "fast"}), "kernelType", `is "fast"`},
		{"it rejects an empty kernel argument", spec("50-bad", mcfgv1.MachineConfigSpec{KernelArguments: []string{"a", ""}}), "kernelArguments[1]", "must not be empty"},
		{"it rejects a kernel argument with a new line", spec("50-bad", mcfgv1.MachineConfigSpec{KernelArguments: []string{"a\nb"}}), "kernelArguments[0]", "control characters"},
		{"it rejects an image that is an option", spec("50-bad", mcfgv1.MachineConfigSpec{OSImageURL: "--privileged"}), "osImageURL", "one word"},
		{"it rejects an extension with a space", spec("50-bad", mcfgv1.MachineConfigSpec{Extensions: []string{"a b"}}), "extensions[0]", "one word"},
		{"it rejects an empty extension", spec("50-bad", mcfgv1.MachineConfigSpec{Extensions: []string{""}}), "extensions[0]", "one word"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := config.Validate(tt.mc)
				var reason *config.Error
				require.ErrorAs(t, err, &reason)
				assert.Equal(t, "50-bad", reason.Name)
				assert.Equal(t, tt.path, strings.TrimPrefix(reason.Path, "spec."))
				assert.Contains(t, err.Error(), tt.problem)
				assert.NotEmpty(t, reason.Remedy)
				assert.NotContains(t, err.Error(), "\n")
				assert.Less(t, len(err.Error()), 1000)

				_, err = config.Render("worker", []*mcfgv1.MachineConfig{worker("10-good", ""), tt.mc}, "")
				assert.Equal(t, reason, err, "a pool names the same reason")
				_, err = config.Decode(tt.mc)
				assert.Equal(t, reason, err, "a host does not trust the pool")
			})
		})
	}
}

func TestErrorExplainsFieldAndRemedy(t *testing.T) {
	err := config.Validate(worker("50-bad", files(file("/proc/a", ""))))
	assert.EqualError(t, err, `MachineConfig 50-bad is invalid: spec.config.storage.files[0].path is "/proc/a", but files in /proc do not survive a reboot; choose another path`)
}

func TestFolderBesideTheStagesIsAccepted(t *testing.T) {
	assert.NoError(t, config.Validate(worker("a", files(file("/var/lib/cvo-node2", "")))), "the name only begins the same")
}

// TestConflictsBetweenConfigsAreRejected checks conflicts that no MachineConfig has alone.
//
//threat:machineconfig-names
func TestConflictsBetweenConfigsAreRejected(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 800_000)
	for i := range noise {
		noise[i] = 'a' + byte(random.IntN(26))
	}
	for _, tt := range []struct {
		name    string
		configs []*mcfgv1.MachineConfig
		want    string
	}{
		{
			"it rejects a file below another",
			[]*mcfgv1.MachineConfig{worker("a", files(file("/etc/a", ""))), worker("b", files(file("/c", ""), file("/etc/a/b", "")))},
			`MachineConfig b is invalid: spec.config.storage.files[1] is "/etc/a/b", below the file "/etc/a" of MachineConfig a; remove one of the two`,
		},
		{
			"it rejects a file above another",
			[]*mcfgv1.MachineConfig{worker("a", files(file("/etc/a/b", ""))), worker("b", files(file("/etc/a", "")))},
			`MachineConfig a is invalid: spec.config.storage.files[0] is "/etc/a/b", below the file "/etc/a" of MachineConfig b; remove one of the two`,
		},
		{
			"it rejects a file in place of a drop-in",
			[]*mcfgv1.MachineConfig{worker("a", units(`{"name": "a.service", "dropins": [{"name": "b.conf", "contents": "[Unit]"}]}`)), worker("b", files(file("/etc/systemd/system/a.service.d/b.conf", "")))},
			`MachineConfig b is invalid: spec.config.storage.files[0] is "/etc/systemd/system/a.service.d/b.conf", the same file on a host as spec.config.systemd.units[0].dropins[0] of MachineConfig a; remove one of the two`,
		},
		{
			"it rejects a file without contents, which would empty that of the host",
			[]*mcfgv1.MachineConfig{worker("a", files(file("/a", ""))), worker("b", files(file("/b", ""), `{"path": "/etc/shadow", "mode": 384}`))},
			`MachineConfig b is invalid: spec.config.storage.files[1].contents.source is missing for "/etc/shadow"; set it to a data URL; "data:," is an empty file`,
		},
		{
			"it rejects a compression that would apply to the contents of another config",
			[]*mcfgv1.MachineConfig{worker("a", files(file("/a", ""))), worker("b", files(`{"path": "/a", "contents": {"compression": "gzip"}}`))},
			`MachineConfig b is invalid: spec.config.storage.files[0].contents.compression has no source; add contents.source`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := config.Render("worker", tt.configs, "")
			assert.EqualError(t, err, tt.want)
		})
	}
	t.Run("it rejects a result that is too large for the cluster", func(t *testing.T) {
		_, err := config.Render("worker", []*mcfgv1.MachineConfig{
			worker("a", files(file("/a", string(noise[:400_000])))), worker("b", files(file("/b", string(noise)))),
		}, "")
		assert.ErrorContains(t, err, "more than the limit of 1572864; shrink the MachineConfigs of the pool, of which b is the largest")
	})
	t.Run("it rejects a result that is too large for a host", func(t *testing.T) {
		zeros := strings.Repeat("0", 10<<20)
		_, err := config.Render("worker", []*mcfgv1.MachineConfig{worker("a", files(zipped(t, "/a", zeros))), worker("b", files(zipped(t, "/b", zeros)))}, "")
		assert.ErrorContains(t, err, "all files together have at most 16777216 bytes of data; shrink the files")
	})
}

func TestDataURLsDecode(t *testing.T) {
	for _, tt := range []struct{ name, source, want string }{
		{"it decodes escapes", "data:,a%20b%0A+c%2C,d", "a b\n+c,,d"},
		{"it decodes base64", "data:text/plain;charset=utf-8;base64,aGVsbG8K", "hello\n"},
		{"it decodes a media type", "data:application/json,%7B%7D", "{}"},
		{"it decodes no data", "data:,", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := content(t, worker("a", files(fmt.Sprintf(`{"path": "/a", "contents": {"source": "%s"}}`, tt.source))))
			assert.Equal(t, tt.want, string(c.Files[0].Data))
		})
	}
}
