// Package machine plays the machine of a node for tests: a folder is its file system, and it is its own init system, as package pkg/node/machine needs
// one. It records the requests to the init system and runs nothing.
package machine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/stretchr/testify/require"
)

// T is the part of testing.TB that a played machine needs.
type T interface {
	require.TestingT
	Helper()
}

// Machine is a played machine.
type Machine struct {
	t T
	// Root is the folder.
	Root string
	// Calls are the requests to the init system: "reload files", "restart a.service", "reload a.service" and "reboot".
	Calls []string
	// During is called in each request and returns its error. Nil accepts all.
	During func(call string) error
	// Unit returns the state of a unit. Nil if each exists and none has failed.
	Unit func(unit string) (exists, hasFailed bool, err error)
	// Reloadable reports whether a unit can reload its configuration. Nil if each can.
	Reloadable func(unit string) bool

	boots int
}

// Play returns the machine with a root folder. It has booted once.
func Play(t T, root string) *Machine {
	m := &Machine{t: t, Root: root}
	m.Write("/proc/sys/kernel/random/boot_id", "0a1b\n")
	m.Boot()
	return m
}

// Boot boots the machine, as in a container: only the start of PID 1 changes.
func (m *Machine) Boot() {
	m.t.Helper()
	m.boots++
	m.Write("/proc/1/stat", fmt.Sprintf("1 (a) b) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 %d 9 10", 1000+m.boots))
}

// Write writes a file of the machine.
func (m *Machine) Write(name, data string) {
	m.t.Helper()
	require.NoError(m.t, os.MkdirAll(filepath.Dir(m.Root+name), 0o755))
	require.NoError(m.t, os.WriteFile(m.Root+name, []byte(data), 0o600))
}

func (m *Machine) call(call string) error {
	m.Calls = append(m.Calls, call)
	if m.During == nil {
		return nil
	}
	return m.During(call)
}

func (m *Machine) unit(unit string) (exists, hasFailed bool, err error) {
	if m.Unit == nil {
		return true, false, nil
	}
	return m.Unit(unit)
}

// HasUnit reports what Unit returns.
func (m *Machine) HasUnit(_ context.Context, unit string) (bool, error) {
	exists, _, err := m.unit(unit)
	return exists, err
}

// HasFailed reports what Unit returns.
func (m *Machine) HasFailed(_ context.Context, unit string) (bool, error) {
	_, hasFailed, err := m.unit(unit)
	return hasFailed, err
}

// CanReload reports what Reloadable returns.
func (m *Machine) CanReload(_ context.Context, unit string) (bool, error) {
	return m.Reloadable == nil || m.Reloadable(unit), nil
}

// ReloadUnitFiles records a request.
func (m *Machine) ReloadUnitFiles(context.Context) error { return m.call("reload files") }

// Restart records a request.
func (m *Machine) Restart(_ context.Context, unit string) error { return m.call("restart " + unit) }

// Reload records a request.
func (m *Machine) Reload(_ context.Context, unit string) error { return m.call("reload " + unit) }

// Reboot records a request. The test calls Boot.
func (m *Machine) Reboot(context.Context) error { return m.call("reboot") }
