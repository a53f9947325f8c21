//go:build linux

// Package systemd plays the systemd of a host for tests. It speaks D-Bus on a socket, as systemd does on /run/systemd/private, and records the calls
// that change something.
package systemd

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	object  = dbus.ObjectPath("/org/freedesktop/systemd1")
	manager = "org.freedesktop.systemd1.Manager"
)

// Options of a played systemd. The zero value has no unit, and each job succeeds.
type Options struct {
	// Units contains the state of each unit: its LoadState, "reloadable", or "failed", which is the ActiveState of a loaded unit that can reload. Others
	// are not found.
	Units map[string]string
	// Job returns the result of a job, such as "failed"; empty for a job that never ends. call is "StartUnit a.service replace", for example. command
	// is that of a transient unit. Default: "done" at once.
	Job func(call string, command []string) (result string)
}

// Systemd is a played systemd.
type Systemd struct {
	t       testing.TB
	options Options

	mu    sync.Mutex
	conns []net.Conn
	calls []string
	// running has the transient units that run.
	running map[string]bool
}

// Play plays systemd on a socket until the test ends.
func Play(t testing.TB, socket string, o Options) *Systemd {
	if o.Job == nil {
		o.Job = func(string, []string) string { return "done" }
	}
	s := &Systemd{t: t, options: o, running: map[string]bool{}}
	require.NoError(t, os.MkdirAll(filepath.Dir(socket), 0o755))
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		assert.NoError(t, listener.Close())
		s.Disconnect()
		running.Wait()
	})
	return s
}

// Disconnect closes all connections, as systemd does when it is updated. It accepts new ones.
func (s *Systemd) Disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.conns = nil
}

// Calls returns the calls that change something, in their order.
func (s *Systemd) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// serve authenticates a client and answers its calls until it closes the connection.
func (s *Systemd) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for isOpen := false; !isOpen; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		switch answer := strings.TrimSpace(strings.TrimLeft(line, "\x00")); {
		case answer == "AUTH":
			fmt.Fprint(conn, "REJECTED EXTERNAL\r\n")
		case strings.HasPrefix(answer, "AUTH EXTERNAL"):
			fmt.Fprint(conn, "OK 0123456789abcdef0123456789abcdef\r\n")
		case answer == "NEGOTIATE_UNIX_FD":
			fmt.Fprint(conn, "ERROR\r\n")
		default:
			isOpen = answer == "BEGIN"
		}
	}
	s.mu.Lock()
	s.conns = append(s.conns, conn)
	s.mu.Unlock()
	// systemd leaves a call that it receives together with the end of the authentication until it receives more.
	for calls, waits := []*dbus.Message(nil), true; ; waits = false {
		call, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		if calls = append(calls, call); waits {
			continue
		}
		for _, call := range calls {
			s.answer(conn, call)
		}
		calls = nil
	}
}

// answer answers a call. The result of a job goes to every connection.
func (s *Systemd) answer(conn net.Conn, call *dbus.Message) {
	member, _ := call.Headers[dbus.FieldMember].Value().(string)
	switch member {
	case "Get":
		path, _ := call.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
		state := "not-found"
		for unit, loaded := range s.options.Units {
			if strings.HasSuffix(string(path), "/"+strings.NewReplacer(".", "_2e", "-", "_2d").Replace(unit)) {
				state = loaded
			}
		}
		var value any = state
		switch property := call.Body[1]; {
		case property == "CanReload":
			value = state == "reloadable" || state == "failed"
		case property == "LoadState" && (state == "failed" || state == "reloadable"):
			value = "loaded"
		case property == "ActiveState" && state != "failed":
			value = "active"
		}
		s.reply(conn, call, dbus.MakeVariant(value))
	case "StartUnit", "RestartUnit", "ReloadUnit", "StartTransientUnit":
		unit, _ := call.Body[0].(string)
		if member == "StartTransientUnit" && (s.options.Units[unit] != "" || !s.start(unit)) {
			s.send(conn, dbus.TypeError, map[dbus.HeaderField]dbus.Variant{
				dbus.FieldReplySerial: dbus.MakeVariant(call.Serial()), dbus.FieldErrorName: dbus.MakeVariant("org.freedesktop.systemd1.UnitExists"),
			}, "Unit was already loaded")
			return
		}
		text := strings.Join([]string{member, unit, fmt.Sprint(call.Body[1])}, " ")
		s.record(text)
		job := object + "/job/1"
		s.reply(conn, call, job)
		if result := s.options.Job(text, command(call)); result != "" {
			if member == "StartTransientUnit" {
				s.stop(unit)
			}
			s.end(job, unit, result)
		}
	case "Reload":
		s.record(member)
		s.reply(conn, call)
	default: // AddMatch, Ping
		s.reply(conn, call)
	}
}

// command returns the command of a transient unit, with its path first; nil for other calls.
func command(call *dbus.Message) []string {
	if len(call.Body) < 3 {
		return nil
	}
	properties, _ := call.Body[2].([][]any)
	for _, property := range properties {
		value, _ := property[1].(dbus.Variant)
		if commands, ok := value.Value().([][]any); ok && property[0] == "ExecStart" {
			arguments, _ := commands[0][1].([]string)
			return arguments
		}
	}
	return nil
}

// start reports whether a transient unit starts: systemd runs one with a name at a time.
func (s *Systemd) start(unit string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	isRunning := s.running[unit]
	s.running[unit] = true
	return !isRunning
}

func (s *Systemd) stop(unit string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, unit)
}

func (s *Systemd) record(call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
}

// end reports the end of a unit's job.
func (s *Systemd) end(job dbus.ObjectPath, unit, result string) {
	s.mu.Lock()
	conns := slices.Clone(s.conns)
	s.mu.Unlock()
	for _, conn := range conns {
		s.send(conn, dbus.TypeSignal, map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath: dbus.MakeVariant(object), dbus.FieldInterface: dbus.MakeVariant(manager), dbus.FieldMember: dbus.MakeVariant("JobRemoved"),
		}, uint32(1), job, unit, result)
	}
}

func (s *Systemd) reply(conn net.Conn, call *dbus.Message, body ...any) {
	s.send(conn, dbus.TypeMethodReply, map[dbus.HeaderField]dbus.Variant{dbus.FieldReplySerial: dbus.MakeVariant(call.Serial())}, body...)
}

// send sends a message. An error of the connection means that the client has closed it.
func (s *Systemd) send(conn net.Conn, kind dbus.Type, headers map[dbus.HeaderField]dbus.Variant, body ...any) {
	if len(body) > 0 {
		headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	var encoded bytes.Buffer
	if err := (&dbus.Message{Type: kind, Headers: headers, Body: body}).EncodeTo(&encoded, binary.LittleEndian); err != nil {
		s.t.Error(err)
		return
	}
	binary.LittleEndian.PutUint32(encoded.Bytes()[8:], 1) // the library cannot set the serial, and 0 is invalid
	_, _ = conn.Write(encoded.Bytes())
}
