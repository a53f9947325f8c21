//go:build linux

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/machine"
)

// server answers every request for a MachineConfig in the same way. Patches of the Node succeed.
type server struct {
	client.WithWatch
	spec  mcfgv1.MachineConfigSpec
	err   error
	reads int
	// written is whether the Node was patched.
	written bool
	status  client.SubResourceWriter
}

func (s *server) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	s.reads++
	if mc, ok := o.(*mcfgv1.MachineConfig); ok {
		mc.Name, mc.Spec = key.Name, s.spec
	}
	return s.err
}

func (s *server) List(context.Context, client.ObjectList, ...client.ListOption) error { return s.err }

func (s *server) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	s.written = true
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, o) // it adds annotations
}

// Status returns status, or a client whose requests get no answer.
func (s *server) Status() client.SubResourceWriter {
	if s.status != nil {
		return s.status
	}
	return silent{}
}

type silent struct{ client.SubResourceWriter }

func (silent) Patch(ctx context.Context, _ client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	<-ctx.Done()
	return ctx.Err()
}

// newNode returns a Node whose desired config is new.
func newNode(annotations map[string]string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{api.DesiredConfigAnnotation: "new"}}}
	maps.Copy(n.Annotations, annotations)
	return n
}

func newDaemon(t *testing.T, s *server) *Daemon {
	h, err := host.Open(t.TempDir(), host.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, h.Close()) })
	return New(s, h, machine.New(h, machine.Options{}), clock.RealClock{}, "n", "1.0.0")
}

func TestOnlyUnusableConfigsDegradeTheNode(t *testing.T) {
	unavailable := errors.New("connection refused")
	for _, tt := range []struct {
		name     string
		server   server
		err      error
		degraded bool
	}{
		{"the server cannot be reached", server{err: unavailable}, unavailable, false},
		{"the MachineConfig does not exist", server{err: apierrors.NewNotFound(mcfgv1.Resource("machineconfigs"), "new")}, nil, true},
		{"the MachineConfig is invalid", server{spec: mcfgv1.MachineConfigSpec{KernelType: "unknown"}}, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, after, err := newDaemon(t, &tt.server).step(t.Context(), newNode(nil))

			require.ErrorIs(t, err, tt.err)
			assert.Equal(t, tt.degraded, tt.server.written)
			assert.Equal(t, tt.degraded, after == time.Minute)
		})
	}
}

func TestReportHasADeadline(t *testing.T) {
	d := newDaemon(t, &server{})
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var s state
		s.node.Object, s.machine.Object = newNode(nil), &mcfgv1.MachineConfigNode{}
		_, err := d.report(t.Context(), s)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, reportTimeout, time.Since(begun))

		for attempt := 1; attempt <= 3; attempt++ {
			begun = time.Now()
			_, again := d.tryReport(t.Context(), s)
			assert.Equal(t, requestRetry.After(attempt), again)
			for _, passed := range []time.Duration{0, again / 2} {
				time.Sleep(passed)
				_, left := d.tryReport(t.Context(), s)
				assert.Equal(t, again-passed, left)
			}
			assert.Equal(t, reportTimeout+again/2, time.Since(begun), "the update does not wait until the next attempt is due")
			time.Sleep(again / 2)
		}
	})
}

// rejecting rejects every report.
type rejecting struct {
	client.SubResourceWriter
	reports int
}

func (r *rejecting) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	r.reports++
	return errors.New("invalid")
}

func TestRejectedReportIsRepeatedAtTheNextStep(t *testing.T) {
	r := &rejecting{}
	d := newDaemon(t, &server{status: r})
	var lines []string
	ctx := logr.NewContext(t.Context(), funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
	var s state
	s.node.Object, s.machine.Object = newNode(nil), &mcfgv1.MachineConfigNode{}
	for attempt := 1; attempt <= 3; attempt++ {
		_, again := d.tryReport(ctx, s)
		assert.Equal(t, requestRetry.After(attempt), again)
		assert.Equal(t, attempt, r.reports)
		require.Len(t, lines, attempt)
		assert.Contains(t, lines[attempt-1], `"msg"="reporting the progress failed"`)
	}
	ctx, end := context.WithCancel(ctx)
	end()
	d.tryReport(ctx, s)
	assert.Len(t, lines, 3, "the end of the process is no error")
}

func TestChangesOfTheHostAreLogged(t *testing.T) {
	s := &server{}
	s.spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","contents":{"source":"data:,hello"}}]}}`)
	mc, err := config.Render("worker", []*mcfgv1.MachineConfig{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: s.spec}}, "")
	require.NoError(t, err)
	s.spec = mc.Spec
	d := newDaemon(t, s)
	var lines []string
	ctx := logr.NewContext(t.Context(), funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
	drained := newNode(map[string]string{
		api.DesiredConfigAnnotation: mc.Name, api.DesiredDrainAnnotation: "drain-" + mc.Name, api.AppliedDrainAnnotation: "drain-" + mc.Name,
	})

	for range 2 {
		_, _, err = d.step(ctx, drained)
		require.NoError(t, err)
	}

	assert.Equal(t, []string{`"level"=0 "msg"="config applied" "config"="` + mc.Name + `" "paths"="/etc, /etc/motd"`}, lines)
	s.err = apierrors.NewNotFound(mcfgv1.Resource("machineconfigs"), "other")
	lines = nil
	_, _, err = d.step(ctx, newNode(map[string]string{api.DesiredConfigAnnotation: "other"}))
	require.NoError(t, err)
	assert.Equal(t, []string{`"level"=0 "msg"="node degraded" "config"="other" "reason"="reading MachineConfig other: machineconfigs.machineconfiguration.openshift.io \"other\" not found"`}, lines)
}

func TestEventsDuringADrainCauseNoRequest(t *testing.T) {
	s := &server{}

	_, after, err := newDaemon(t, s).step(t.Context(), newNode(map[string]string{api.DesiredDrainAnnotation: "drain-new"}))

	require.NoError(t, err)
	assert.Zero(t, after)
	assert.Zero(t, s.reads)
	assert.False(t, s.written)
}
