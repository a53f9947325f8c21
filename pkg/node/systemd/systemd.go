//go:build linux

// Package systemd controls the units of a host. It takes the socket on which systemd accepts calls from root, so neither a message bus nor
// systemctl is necessary. Each call has its own connection, because systemd closes connections when it is updated. Linux only.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// Socket is the path of systemd's socket below the host's root.
const Socket = "run/systemd/private"

// ping is a call without an effect. pingInterval is the time after which a new connection repeats it.
const (
	ping         = "org.freedesktop.DBus.Peer.Ping"
	pingInterval = 10 * time.Millisecond
)

// errClosed means that the result of a job is not known.
var errClosed = errors.New("systemd closed the connection before the end of the job")

// Manager is the systemd of a host.
type Manager struct {
	socket string
	// answerTimeout is the time in which systemd must accept a connection.
	answerTimeout time.Duration
}

// New returns the systemd behind a socket. It does not connect.
func New(socket string) *Manager { return &Manager{socket, 30 * time.Second} }

// HasUnit reports whether systemd finds the file of a unit. A masked unit has none.
func (m *Manager) HasUnit(ctx context.Context, unit string) (bool, error) {
	state, err := property[string](ctx, m, unit, "LoadState")
	return err == nil && state != "not-found" && state != "masked", err
}

// HasFailed reports whether a unit has failed. A unit that starts or restarts has not.
func (m *Manager) HasFailed(ctx context.Context, unit string) (bool, error) {
	state, err := property[string](ctx, m, unit, "ActiveState")
	return state == "failed", err
}

// CanReload reports whether a unit runs and has a command that reloads its configuration.
func (m *Manager) CanReload(ctx context.Context, unit string) (bool, error) {
	can, err := property[bool](ctx, m, unit, "CanReload")
	if !can || err != nil {
		return false, err
	}
	state, err := property[string](ctx, m, unit, "ActiveState")
	return state == "active", err
}

func property[T any](ctx context.Context, m *Manager, unit, name string) (value T, err error) {
	err = m.call(ctx, func(c *dbus.Conn, _ <-chan struct{}) error {
		property, err := c.GetUnitPropertyContext(ctx, unit, name)
		if err == nil {
			value, _ = property.Value.Value().(T)
		}
		return err
	})
	if err != nil {
		return value, fmt.Errorf("finding unit %s: %w", unit, err)
	}
	return value, nil
}

// ReloadUnitFiles makes systemd read all files of units again.
func (m *Manager) ReloadUnitFiles(ctx context.Context) error {
	err := m.call(ctx, func(c *dbus.Conn, _ <-chan struct{}) error { return c.ReloadContext(ctx) })
	if err != nil {
		return fmt.Errorf("reloading the files of units: %w", err)
	}
	return nil
}

// Restart restarts a unit, or starts it, and waits until it has started.
func (m *Manager) Restart(ctx context.Context, unit string) error {
	return m.job(ctx, "restarting", unit, func(c *dbus.Conn, results chan<- string) (int, error) {
		return c.RestartUnitContext(ctx, unit, "replace", results)
	})
}

// Reload makes a running unit reload its configuration, and waits for the result.
func (m *Manager) Reload(ctx context.Context, unit string) error {
	return m.job(ctx, "reloading", unit, func(c *dbus.Conn, results chan<- string) (int, error) {
		return c.ReloadUnitContext(ctx, unit, "replace", results)
	})
}

// Reboot begins to shut down all services, and then reboots the host. It does not wait. logind is not necessary.
func (m *Manager) Reboot(ctx context.Context) error {
	err := m.call(ctx, func(c *dbus.Conn, _ <-chan struct{}) error {
		_, err := c.StartUnitContext(ctx, "reboot.target", "replace-irreversibly", nil)
		return err
	})
	if err != nil {
		return fmt.Errorf("rebooting: %w", err)
	}
	return nil
}

// Run runs a command as a service that no file defines, and waits until it ends. It continues if the caller ends. started is false without an
// error if the service runs already. An error of a started service means that it failed, or that its end is not known.
func (m *Manager) Run(ctx context.Context, unit string, command []string) (started bool, err error) {
	properties := []dbus.Property{
		dbus.PropDescription("Change this node for its machine-config daemon"), dbus.PropType("oneshot"), dbus.PropExecStart(command, false),
		{Name: "CollectMode", Value: godbus.MakeVariant("inactive-or-failed")},
	}
	err = m.job(ctx, "running", unit, func(c *dbus.Conn, results chan<- string) (int, error) {
		id, err := c.StartTransientUnitContext(ctx, unit, "fail", properties, results)
		started = err == nil
		return id, err
	})
	if failure, ok := errors.AsType[godbus.Error](err); ok && failure.Name == "org.freedesktop.systemd1.UnitExists" {
		return false, nil
	}
	return started, err
}

// job starts a job and waits for its result.
func (m *Manager) job(ctx context.Context, action, unit string, start func(*dbus.Conn, chan<- string) (int, error)) error {
	err := m.call(ctx, func(c *dbus.Conn, closed <-chan struct{}) error {
		results := make(chan string, 1)
		if _, err := start(c, results); err != nil {
			return err
		}
		select {
		case result := <-results:
			if result != "done" {
				return fmt.Errorf("systemd reports the result %q", result)
			}
			return nil
		case <-closed:
			return errClosed
		}
	})
	if err != nil {
		return fmt.Errorf("%s unit %s: %w", action, unit, err)
	}
	return nil
}

// call calls do with a connection. closed ends with the part of the connection that receives signals, or with ctx.
func (m *Manager) call(ctx context.Context, do func(c *dbus.Conn, closed <-chan struct{}) error) error {
	var closed <-chan struct{}
	c, err := dbus.NewConnection(func() (*godbus.Conn, error) {
		conn, err := m.dial(ctx)
		if err == nil {
			closed = conn.Context().Done() // the last of the two connections receives the signals
		}
		return conn, err
	})
	if err != nil {
		return fmt.Errorf("connecting to systemd at %s: %w", m.socket, err)
	}
	defer c.Close()
	err = do(c, closed)
	if err != nil && ctx.Err() != nil {
		return ctx.Err() // the connection ends with ctx, and its own errors vary
	}
	return err
}

// dial returns a connection that systemd has accepted. It ends with ctx.
func (m *Manager) dial(ctx context.Context) (*godbus.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	timeout := time.AfterFunc(m.answerTimeout, cancel)
	conn, err := m.connect(ctx)
	if !timeout.Stop() {
		err = fmt.Errorf("no answer after %s", m.answerTimeout)
	}
	if err != nil {
		cancel() // closes a connection
		return nil, err
	}
	context.AfterFunc(conn.Context(), cancel)
	return conn, nil
}

func (m *Manager) connect(ctx context.Context) (*godbus.Conn, error) {
	conn, err := godbus.Dial("unix:path="+godbus.EscapeBusAddressValue(m.socket), godbus.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if err := conn.Auth([]godbus.Auth{godbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	// systemd sends the results of jobs only to connections that it has accepted, so wait for that. It leaves a call that it receives together with
	// the end of the authentication until it receives more.
	object := conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
	accepted := object.Go(ping, 0, make(chan *godbus.Call, 1)).Done
	for {
		select {
		case call := <-accepted:
			if call.Err != nil {
				return nil, errors.Join(call.Err, conn.Close())
			}
			return conn, nil
		case <-time.After(pingInterval):
			object.Go(ping, godbus.FlagNoReplyExpected, nil)
		}
	}
}
