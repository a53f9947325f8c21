//go:build linux

package host_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
)

const systemUnits = "/etc/systemd/system/"

func link(t testing.TB, root, name, target string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(root+name), 0o755))
	require.NoError(t, os.Symlink(target, root+name))
}

// links returns the links below the folder of units, with their targets.
func links(t testing.TB, root string) []string {
	t.Helper()
	var all []string
	for name, entry := range list(t, root) {
		if _, target, ok := strings.Cut(entry, " → "); ok {
			all = append(all, strings.TrimPrefix(name, systemUnits)+" → "+target)
		}
	}
	return slices.Sorted(slices.Values(all))
}

func enabled(name, contents string) config.Unit {
	return config.Unit{Name: name, Contents: contents, Enabled: new(true)}
}

func disabled(name string) config.Unit { return config.Unit{Name: name, Enabled: new(false)} }

func unitsOf(units ...config.Unit) config.Content { return config.Content{Units: units} }

func TestUnitsAreEnabledByTheirInstallSection(t *testing.T) {
	for _, test := range []struct {
		name string
		unit config.Unit
		want []string
	}{
		{
			"a unit of the config",
			enabled("a.service", "[Unit]\nWantedBy=x.target\n[Install]\n# WantedBy=y.target\nWantedBy = multi-user.target  b.target\nRequiredBy=c.target\nUpheldBy=d.target"),
			[]string{
				"b.target.wants/a.service → /etc/systemd/system/a.service", "c.target.requires/a.service → /etc/systemd/system/a.service",
				"d.target.upholds/a.service → /etc/systemd/system/a.service", "multi-user.target.wants/a.service → /etc/systemd/system/a.service",
			},
		},
		{
			"an empty value and a continued line", enabled("a.service", "[Install]\nWantedBy=x.target\nWantedBy=\nWantedBy=\\\n  y.target\n"),
			[]string{"y.target.wants/a.service → /etc/systemd/system/a.service"},
		},
		{"a unit without the section", enabled("a.service", "[Unit]"), nil},
		{"an alias", enabled("a.service", "[Install]\nAlias=b.service"), []string{"b.service → /etc/systemd/system/a.service"}},
		{
			"a unit of the operating system, with another one", enabled("os.service", ""),
			[]string{"multi-user.target.wants/os.service → /usr/lib/systemd/system/os.service", "sockets.target.wants/os.socket → /usr/lib/systemd/system/os.socket"},
		},
		{
			"an instance of a template", enabled("t@1.service", ""),
			[]string{"1.target.wants/t@1.service → /usr/lib/systemd/system/t@.service"},
		},
		{
			"the default instance of a template", enabled("t@.service", ""),
			[]string{"0.target.wants/t@0.service → /usr/lib/systemd/system/t@.service"},
		},
		{
			"a drop-in of the config",
			config.Unit{Name: "a.service", Contents: "[Unit]", Enabled: new(true), DropIns: []config.DropIn{{Name: "i.conf", Contents: "[Install]\nWantedBy=x.target"}}},
			[]string{"x.target.wants/a.service → /etc/systemd/system/a.service"},
		},
		{"a masked unit", config.Unit{Name: "a.service", Mask: new(true), Enabled: new(true)}, []string{"a.service → /dev/null"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			write(t, root, "/usr/lib/systemd/system/os.service", "[Install]\nWantedBy=multi-user.target\nAlso=os.socket\n", 0o644)
			write(t, root, "/usr/lib/systemd/system/os.socket", "[Install]\nWantedBy=sockets.target\nAlso=os.service\n", 0o644)
			write(t, root, "/usr/lib/systemd/system/t@.service", "[Install]\nWantedBy=%i.target\nDefaultInstance=0\n", 0o644)
			require.NoError(t, os.MkdirAll(root+"/etc/systemd/system", 0o755))
			before := list(t, root)
			h := open(t, root, tree.Options{})
			update(t, h, "a", unitsOf(test.unit))
			assert.Equal(t, test.want, links(t, root))
			drifts, err := h.Verify(unitsOf(test.unit))
			require.NoError(t, err)
			assert.Empty(t, drifts)
			update(t, h, "empty", config.Content{})
			assert.Equal(t, before, list(t, root))
		})
	}
}

func TestDisabledUnitStaysDisabledWhileAConfigSaysSo(t *testing.T) {
	root := t.TempDir()
	write(t, root, "/usr/lib/systemd/system/a.service", "[Install]\nWantedBy=multi-user.target", 0o644)
	link(t, root, systemUnits+"multi-user.target.wants/a.service", "/usr/lib/systemd/system/a.service")
	link(t, root, systemUnits+"own.target.wants/a.service", "/usr/lib/systemd/system/a.service")
	link(t, root, systemUnits+"alias.service", "/usr/lib/systemd/system/a.service")
	link(t, root, systemUnits+"multi-user.target.wants/b.service", "/usr/lib/systemd/system/b.service")
	before := links(t, root)
	h := open(t, root, tree.Options{})
	drifts, err := h.Verify(unitsOf(disabled("a.service")))
	require.NoError(t, err)
	assert.Len(t, drifts, 3)
	assert.Equal(t, host.Drift{Path: systemUnits + "alias.service", Found: "enables a unit that must be disabled"}, drifts[0])

	for _, name := range []string{"first", "second"} {
		content := unitsOf(disabled("a.service"), disabled("missing.service"))
		content.Files = []config.File{file("/etc/"+name, "", 0o644)}
		update(t, h, name, content)
		assert.Equal(t, []string{"multi-user.target.wants/b.service → /usr/lib/systemd/system/b.service"}, links(t, root), name)
		drifts, err := h.Verify(content)
		require.NoError(t, err)
		assert.Empty(t, drifts)
	}
	update(t, h, "empty", config.Content{})
	assert.Equal(t, before, links(t, root))
}

// TestConfigDecidesAboutEachUnitThatItNames has units that have each other in Also, or the same alias.
func TestConfigDecidesAboutEachUnitThatItNames(t *testing.T) {
	const (
		service = "multi-user.target.wants/a.service → /usr/lib/systemd/system/a.service"
		socket  = "sockets.target.wants/a.socket → /usr/lib/systemd/system/a.socket"
		alias   = "alias.service → /usr/lib/systemd/system/old.service"
	)
	for _, test := range []struct {
		name  string
		units []config.Unit
		want  []string
	}{
		{"a service is disabled, its socket is not", []config.Unit{disabled("a.service"), enabled("a.socket", "")}, []string{alias, socket}},
		{"a socket is disabled, its service is not", []config.Unit{enabled("a.service", ""), disabled("a.socket")}, []string{alias, service}},
		{
			"another unit gets the alias",
			[]config.Unit{disabled("old.service"), enabled("new.service", "")},
			[]string{"alias.service → /usr/lib/systemd/system/new.service", service, socket},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			write(t, root, "/usr/lib/systemd/system/a.service", "[Install]\nWantedBy=multi-user.target\nAlso=a.socket\n", 0o644)
			write(t, root, "/usr/lib/systemd/system/a.socket", "[Install]\nWantedBy=sockets.target\nAlso=a.service\n", 0o644)
			write(t, root, "/usr/lib/systemd/system/old.service", "[Install]\nAlias=alias.service\n", 0o644)
			write(t, root, "/usr/lib/systemd/system/new.service", "[Install]\nAlias=alias.service\n", 0o644)
			for _, l := range []string{service, socket, alias} {
				name, target, _ := strings.Cut(l, " → ")
				link(t, root, systemUnits+name, target)
			}
			h := open(t, root, tree.Options{})
			for range 2 { // the order of the units makes no difference
				update(t, h, "a", unitsOf(test.units...))
				assert.Equal(t, test.want, links(t, root))
				drifts, err := h.Verify(unitsOf(test.units...))
				require.NoError(t, err)
				assert.Empty(t, drifts)
				update(t, h, "empty", config.Content{})
				assert.Equal(t, []string{alias, service, socket}, links(t, root))
				slices.Reverse(test.units)
			}
		})
	}
}

func TestEnabledUnitKeepsAnEqualLink(t *testing.T) {
	root := t.TempDir()
	write(t, root, "/usr/lib/systemd/system/a.service", "[Install]\nWantedBy=multi-user.target", 0o644)
	link(t, root, systemUnits+"multi-user.target.wants/a.service", "../../../../lib/systemd/system/a.service")
	h := open(t, root, tree.Options{})
	drifts, err := h.Verify(unitsOf(enabled("a.service", "")))
	require.NoError(t, err)
	assert.Empty(t, drifts)

	require.NoError(t, os.Remove(root+systemUnits+"multi-user.target.wants/a.service"))
	drifts, err = h.Verify(unitsOf(enabled("a.service", "")))
	require.NoError(t, err)
	assert.Equal(t, []host.Drift{{Path: systemUnits + "multi-user.target.wants/a.service", Found: "missing"}}, drifts)
}

// TestUnitIsEnabledByTheFileThatTheChangeLeaves moves the file of a unit to or from a config that enables it.
func TestUnitIsEnabledByTheFileThatTheChangeLeaves(t *testing.T) {
	own := enabled("a.service", "[Install]\nWantedBy=own.target")
	const wants = "os.target.wants/a.service → /usr/lib/systemd/system/a.service"
	for _, test := range []struct {
		name     string
		prepare  func(root string)
		from, to config.Content
		want     []string // nil for an error
	}{
		{"only the former config has the file", func(string) {}, unitsOf(own), unitsOf(enabled("a.service", "")), nil},
		{"the operating system has it, too", func(root string) {
			write(t, root, "/usr/lib/systemd/system/a.service", "[Install]\nWantedBy=os.target", 0o644)
		}, unitsOf(own), unitsOf(enabled("a.service", "")), []string{wants}},
		{"the link has the same name for both files", func(root string) {
			write(t, root, "/usr/lib/systemd/system/a.service", "[Install]\nWantedBy=own.target", 0o644)
		}, unitsOf(own), unitsOf(enabled("a.service", "")), []string{"own.target.wants/a.service → /usr/lib/systemd/system/a.service"}},
		{"an administrator's file returns", func(root string) {
			write(t, root, systemUnits+"a.service", "[Install]\nWantedBy=admin.target", 0o644)
		}, unitsOf(own), unitsOf(enabled("a.service", "")), []string{"admin.target.wants/a.service → " + systemUnits + "a.service"}},
		{"an administrator's link returns", func(root string) {
			write(t, root, "/opt/a.service", "[Install]\nWantedBy=admin.target", 0o644)
			link(t, root, systemUnits+"a.service", "../../../opt/a.service")
		}, unitsOf(own), unitsOf(enabled("a.service", "")), []string{"a.service → ../../../opt/a.service", "admin.target.wants/a.service → " + systemUnits + "a.service"}},
		{
			"the file is one of the config's files", func(string) {},
			config.Content{},
			config.Content{
				Files: []config.File{file("/usr/lib/systemd/system/a.service", "[Install]\nWantedBy=os.target", 0o644)},
				Units: []config.Unit{enabled("a.service", "")},
			},
			[]string{wants},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			test.prepare(root)
			h := open(t, root, tree.Options{})
			update(t, h, "from", test.from)
			if test.want == nil {
				require.ErrorIs(t, h.Apply("to", test.to), fs.ErrNotExist)
				return
			}
			update(t, h, "to", test.to)
			assert.Equal(t, test.want, links(t, root))
			drifts, err := h.Verify(test.to)
			require.NoError(t, err)
			assert.Empty(t, drifts)
		})
	}
}

func TestUnitThatCannotBeEnabledStopsTheChange(t *testing.T) {
	for _, test := range []struct {
		unit config.Unit
		want string
	}{
		{enabled("missing.service", ""), "applying a: finding unit missing.service: enable /etc/systemd/system/missing.service: no such file or directory"},
		{enabled("t@.service", "[Install]\nWantedBy=x.target"), "applying a: finding unit t@.service: a template without DefaultInstance cannot be enabled: invalid argument"},
		{enabled("a.service", "[Install]\nAlias=../../passwd"), "applying a: finding unit a.service: its section [Install] cannot be followed: /etc/passwd: invalid argument"},
		{enabled("a.service", "[Install]\nWantedBy=%b.target"), "applying a: finding unit a.service: its section [Install] cannot be followed: /etc/systemd/system/%b.target.wants/a.service: invalid argument"},
		{enabled("a.service", "[Install]\nAlias=cvo-node-apply.service"), "applying a: finding unit a.service: its section [Install] names a unit of the node stage: /etc/systemd/system/cvo-node-apply.service: invalid argument"},
		{enabled("a.service", "[Install]\nAlias=cvo-node-guard.service"), "applying a: finding unit a.service: its section [Install] names a unit of the node stage: /etc/systemd/system/cvo-node-guard.service: invalid argument"},
		{
			config.Unit{Name: "a.service", Contents: "[Install]\nAlso=cvo-node-guard.service", Enabled: new(false)},
			"applying a: finding unit a.service: its section [Install] names a unit of the node stage: cvo-node-guard.service: invalid argument",
		},
		{enabled("a.service", "[Install]\nAlias=a.service"), "applying a: enable /etc/systemd/system/a.service: file exists"},
	} {
		root := t.TempDir()
		h := open(t, root, tree.Options{})
		require.EqualError(t, h.Apply("a", unitsOf(test.unit)), test.want)
		assert.Empty(t, maps.Collect(maps.All(list(t, root))))
	}
	h := open(t, t.TempDir(), tree.Options{})
	drifts, err := h.Verify(unitsOf(enabled("missing.service", "")))
	require.NoError(t, err)
	assert.Len(t, drifts, 1)
	require.ErrorIs(t, h.Apply("a", unitsOf(enabled("missing.service", ""))), fs.ErrNotExist)
}
