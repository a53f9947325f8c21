package fault_test

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/test/fault"
)

// echo returns the address of a server that echoes its input.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

// TestListenWaitsForItsPort has a connection that keeps the port for a while.
func TestListenWaitsForItsPort(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	time.AfterFunc(200*time.Millisecond, func() { _ = taken.Close() })
	got, err := fault.Listen(taken.Addr().String())
	require.NoError(t, err)
	defer got.Close()
	assert.Equal(t, taken.Addr().String(), got.Addr().String())

	_, err = fault.Listen("127.0.0.1:99999")
	require.Error(t, err, "another error is returned at once")
}

func say(t *testing.T, conn net.Conn, text string, patience time.Duration) (string, error) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	received := make([]byte, len(text))
	n, err := io.ReadFull(conn, received)
	return string(received[:n]), err
}

func TestProxyBreaksConnections(t *testing.T) {
	proxy, err := fault.NewProxy(echo(t))
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", proxy.Address())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	const long, short = time.Minute, 100 * time.Millisecond
	before := dial()
	received, err := say(t, before, "hello", long)
	require.NoError(t, err)
	assert.Equal(t, "hello", received)

	proxy.Lose()
	during := dial()
	for _, conn := range []net.Conn{before, during} {
		_, err = say(t, conn, "anybody?", short)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "a lost connection is silent")
	}
	proxy.Find()
	_, err = say(t, before, "anybody?", short)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "a connection that lost bytes stays dead")
	after := dial()
	_, err = say(t, after, "hello", long)
	require.NoError(t, err)

	proxy.Limit(1000)
	begun := time.Now()
	_, err = say(t, after, "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789", long)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(begun), 99*time.Millisecond, "100 bytes at 1000 bytes per second")

	proxy.Refuse()
	_, err = say(t, after, "hello", long)
	assert.True(t, errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EPIPE), "%v", err)
	_, err = net.Dial("tcp", proxy.Address())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.NoError(t, proxy.Accept())
	_, err = say(t, dial(), "hello", long)
	require.NoError(t, err)
}
