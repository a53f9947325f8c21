package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
)

const (
	tenantObjects = 250
	// tenantBytes is the size of the finalizers of one object. The API server also records each in managedFields.
	tenantBytes = 400_000
	// tenantAllowance is the memory, in MiB, that all of these objects together may cost the operator.
	tenantAllowance = 10
)

// TestTenantObjectsCostNoMemory lets a tenant add the operator's label to large objects, first while the operator runs and then before it
// starts.
//
//threat:tenant-labels-many
func TestTenantObjectsCostNoMemory(t *testing.T) {
	p := newPlatform(t)
	first := p.build("../../examples/platform/1.0.0", "1.0.0")
	_, err := p.run("install", "--no-operator", "--release-image", first.ByDigest(), "--trust", p.trust)
	require.NoError(t, err)
	p.start("operators")
	operator := p.operator(first.ByDigest())
	p.await("1.0.0 to complete", time.Minute, completed("1.0.0"))
	p.awaitRecords("1.0.0", time.Time{})
	operator.end(t)

	core, err := corev1client.NewForConfig(p.env.Config("tenant"))
	require.NoError(t, err)
	operator = p.operator(first.ByDigest())
	p.awaitRecreated(core)
	without := operator.peak(t)

	tenant, err := client.New(p.env.Config("tenant"), client.Options{})
	require.NoError(t, err)
	createLarge(t, tenant)
	p.awaitRecreated(core) // the watch has delivered all events before this one
	during := operator.peak(t)
	operator.end(t)

	operator = p.operator(first.ByDigest())
	p.awaitRecreated(core)
	after := operator.peak(t)
	t.Logf("peak memory: %.0f MiB without a tenant's objects, %.0f MiB while they are written, %.0f MiB after a restart", without, during, after)
	assert.LessOrEqual(t, during, without+tenantAllowance)
	assert.LessOrEqual(t, after, without+tenantAllowance)
}

// createLarge creates labeled ConfigMaps and workloads with large finalizers, and deletes them; the finalizers keep them.
func createLarge(t *testing.T, c client.Client) {
	t.Helper()
	const namespace = "tenant"
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	var finalizers []string
	for size := 0; size < tenantBytes; {
		f := fmt.Sprintf("example.com/%s-%d", strings.Repeat("f", 50), len(finalizers))
		finalizers, size = append(finalizers, f), size+len(f)
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "x"}}
	pod := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: selector.MatchLabels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "example.com/x"}}},
	}
	once := *pod.DeepCopy()
	once.Labels, once.Spec.RestartPolicy = nil, corev1.RestartPolicyNever
	var group errgroup.Group
	group.SetLimit(4)
	for i := range tenantObjects {
		meta := metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprint("large-", i), Labels: map[string]string{api.OwnedByLabel: "version"}, Finalizers: finalizers,
		}
		kinds := []client.Object{
			&corev1.ConfigMap{ObjectMeta: meta},
			&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: pod}},
			&appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: pod}},
			&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: pod}},
			&batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: once}},
		}
		group.Go(func() error {
			object := kinds[i%len(kinds)]
			if err := c.Create(t.Context(), object); err != nil {
				return err
			}
			return c.Delete(t.Context(), object, client.PropagationPolicy(metav1.DeletePropagationBackground))
		})
	}
	require.NoError(t, group.Wait())
}

// peak returns the peak resident memory of the process in MiB.
func (proc *process) peak(t *testing.T) float64 {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(proc.pid()), "status"))
	require.NoError(t, err)
	_, line, found := strings.Cut(string(status), "VmHWM:")
	require.True(t, found)
	var kib float64
	_, err = fmt.Sscan(line, &kib)
	require.NoError(t, err)
	return kib / 1024
}

// cpu returns the processor time that the process has used.
func (proc *process) cpu(t *testing.T) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(proc.pid()), "stat"))
	require.NoError(t, err)
	// The second field is the command in parentheses. utime and stime are the fields 14 and 15, in hundredths of a second.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	require.Greater(t, len(fields), 12)
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		require.NoError(t, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// TestTenantWritesCostLittle lets a tenant write one labeled object as fast as possible. The operator only decodes each event.
//
//threat:tenant-labels-many
func TestTenantWritesCostLittle(t *testing.T) {
	const writes = 3000
	p := newPlatform(t)
	first := p.build("../../examples/platform/1.0.0", "1.0.0")
	_, err := p.run("install", "--no-operator", "--release-image", first.ByDigest(), "--trust", p.trust)
	require.NoError(t, err)
	p.start("operators")
	operator := p.operator(first.ByDigest())
	p.await("1.0.0 to complete", time.Minute, completed("1.0.0"))
	core, err := corev1client.NewForConfig(p.env.Config("tenant"))
	require.NoError(t, err)
	p.awaitRecreated(core)

	labeled := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "busy", Labels: map[string]string{api.OwnedByLabel: "version"}}}
	_, err = core.ConfigMaps("default").Create(t.Context(), labeled, metav1.CreateOptions{})
	require.NoError(t, err)
	begin, before, own := time.Now(), operator.cpu(t), ownCPU(t)
	var group errgroup.Group
	var done atomic.Int64
	for range 4 {
		group.Go(func() error {
			for n := done.Add(1); n <= writes; n = done.Add(1) {
				edited := labeled.DeepCopy()
				edited.Data = map[string]string{"n": fmt.Sprint(n)}
				if _, err := core.ConfigMaps("default").Update(t.Context(), edited, metav1.UpdateOptions{}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	took, used, spent := time.Since(begin), operator.cpu(t)-before, ownCPU(t)-own
	t.Logf("%.0f writes per second used %.1f %% of a core, %s per write; their client used %s", writes/took.Seconds(), 100*used.Seconds()/took.Seconds(), used/writes, spent/writes)
	assert.Less(t, used, spent, "an event costs the operator less than its write costs the tenant")
}

// ownCPU returns the processor time of this process so far.
func ownCPU(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
