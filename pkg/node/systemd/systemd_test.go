//go:build linux

package systemd_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/node/systemd"
)

const (
	object  = dbus.ObjectPath("/org/freedesktop/systemd1")
	manager = "org.freedesktop.systemd1.Manager"
)

// player plays systemd on a socket. It speaks the protocol of D-Bus, and records the calls that change something.
type player struct {
	t      *testing.T
	socket string
	// units contains the LoadState of each unit. Others are not found.
	units map[string]string
	// results contains the result of each unit's jobs; default "done", empty for a job that never ends.
	results map[string]string

	mu    sync.Mutex
	conns []net.Conn
	calls []string
	// called receives a value for each job that never ends.
	called chan struct{}
}

func play(t *testing.T) *player {
	p := &player{t: t, socket: filepath.Join(t.TempDir(), "private"), units: map[string]string{}, results: map[string]string{}, called: make(chan struct{}, 1)}
	listener, err := net.Listen("unix", p.socket)
	require.NoError(t, err)
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() {
		assert.NoError(t, listener.Close())
		conns.Wait()
	})
	return p
}

// serve authenticates a client and answers its calls until it closes the connection.
func (p *player) serve(conn net.Conn) {
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
	p.mu.Lock()
	p.conns = append(p.conns, conn)
	p.mu.Unlock()
	for {
		call, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		p.answer(conn, call)
	}
}

// answer answers a call. The result of a job goes to every connection.
func (p *player) answer(conn net.Conn, call *dbus.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	member, _ := call.Headers[dbus.FieldMember].Value().(string)
	switch member {
	case "Get":
		path, _ := call.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
		state := "not-found"
		for unit, loaded := range p.units {
			if strings.HasSuffix(string(path), "/"+strings.NewReplacer(".", "_2e", "-", "_2d").Replace(unit)) {
				state = loaded
			}
		}
		p.reply(conn, call, dbus.MakeVariant(state))
	case "StartUnit", "RestartUnit", "ReloadUnit":
		unit, _ := call.Body[0].(string)
		mode, _ := call.Body[1].(string)
		p.calls = append(p.calls, strings.Join([]string{member, unit, mode}, " "))
		job := object + "/job/1"
		p.reply(conn, call, job)
		result, ok := p.results[unit]
		if !ok {
			result = "done"
		}
		if result == "" {
			p.called <- struct{}{}
			return
		}
		for _, conn := range p.conns {
			p.send(conn, dbus.TypeSignal, map[dbus.HeaderField]dbus.Variant{
				dbus.FieldPath: dbus.MakeVariant(object), dbus.FieldInterface: dbus.MakeVariant(manager), dbus.FieldMember: dbus.MakeVariant("JobRemoved"),
			}, uint32(1), job, unit, result)
		}
	case "Reload":
		p.calls = append(p.calls, member)
		p.reply(conn, call)
	default: // AddMatch, Ping
		p.reply(conn, call)
	}
}

func (p *player) reply(conn net.Conn, call *dbus.Message, body ...any) {
	p.send(conn, dbus.TypeMethodReply, map[dbus.HeaderField]dbus.Variant{dbus.FieldReplySerial: dbus.MakeVariant(call.Serial())}, body...)
}

// send sends a message. An error means that the client has closed the connection.
func (p *player) send(conn net.Conn, kind dbus.Type, headers map[dbus.HeaderField]dbus.Variant, body ...any) {
	if len(body) > 0 {
		headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	var encoded bytes.Buffer
	if err := (&dbus.Message{Type: kind, Headers: headers, Body: body}).EncodeTo(&encoded, binary.LittleEndian); err != nil {
		p.t.Error(err)
		return
	}
	binary.LittleEndian.PutUint32(encoded.Bytes()[8:], 1) // the library cannot set the serial, and 0 is invalid
	_, _ = conn.Write(encoded.Bytes())
}

func (p *player) recorded() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

func TestManagerCallsSystemd(t *testing.T) {
	p := play(t)
	p.results["broken.service"] = "failed"
	m := systemd.New(p.socket)

	require.NoError(t, m.ReloadUnitFiles(t.Context()))
	require.NoError(t, m.Restart(t.Context(), "a.service"))
	require.NoError(t, m.Reload(t.Context(), "crio.service"))
	require.EqualError(t, m.Restart(t.Context(), "broken.service"), `restarting unit broken.service: systemd reports the result "failed"`)
	require.NoError(t, m.Reboot(t.Context()))
	assert.Equal(t, []string{
		"Reload", "RestartUnit a.service replace", "ReloadUnit crio.service replace", "RestartUnit broken.service replace",
		"StartUnit reboot.target replace-irreversibly",
	}, p.recorded())
}

func TestHasUnitReadsTheLoadState(t *testing.T) {
	p := play(t)
	p.units["kubelet.service"], p.units["masked.service"] = "loaded", "masked"
	for unit, want := range map[string]bool{"kubelet.service": true, "masked.service": false, "crio.service": false} {
		has, err := systemd.New(p.socket).HasUnit(t.Context(), unit)
		require.NoError(t, err)
		assert.Equal(t, want, has, unit)
	}
}

func TestJobEndsWithItsContext(t *testing.T) {
	p := play(t)
	p.results["slow.service"] = ""
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error)
	go func() { done <- systemd.New(p.socket).Restart(ctx, "slow.service") }()
	<-p.called
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

func TestMissingSystemdIsAnError(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "private")
	_, err := systemd.New(socket).HasUnit(t.Context(), "a.service")
	require.ErrorContains(t, err, "finding unit a.service: connecting to systemd at "+socket)
}
