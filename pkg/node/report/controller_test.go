package report

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	clocktesting "k8s.io/utils/clock/testing"
)

// versions is an API server that reports its version, or fails.
type versions struct {
	discovery.ServerVersionInterface
	version string
	err     error
	reads   int
}

func (v *versions) ServerVersion() (*apiversion.Info, error) {
	v.reads++
	return &apiversion.Info{GitVersion: v.version}, v.err
}

func TestFailedReadOfTheVersionIsRepeatedSoon(t *testing.T) {
	server := &versions{version: "v1.35.1"}
	clk := clocktesting.NewFakePassiveClock(time.Now())
	r := &reporter{server: server, clock: clk}
	read := func(after time.Duration) string {
		clk.SetTime(clk.Now().Add(after))
		require.NoError(t, r.readVersion())
		return r.apiServer.String()
	}
	assert.Equal(t, "1.35.1", read(0))
	server.version, server.err = "v1.36.0", errors.New("connection refused")
	read(versionAge - time.Second)
	assert.Equal(t, 1, server.reads)
	assert.Equal(t, "1.35.1", read(time.Second))
	server.err = nil
	assert.Equal(t, "1.35.1", read(versionRetry-time.Second))
	assert.Equal(t, "1.36.0", read(time.Second))
	assert.Equal(t, 3, server.reads)
}
