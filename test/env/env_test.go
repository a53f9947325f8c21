package env_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/ring"
)

// childEnv makes the test binary act as the program that TestNothingOutlivesAKilledProcess kills.
const childEnv = "CVO_ENV_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	e, err := env.Start(env.Options{})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println(e.Dir)
	select {}
}

func TestEnvLogsRequests(t *testing.T) {
	began := time.Now()
	e := env.New(t, env.Options{Audit: env.AuditWrites})
	t.Logf("started in %v", time.Since(began))
	client, err := kubernetes.NewForConfig(e.Config("first"))
	require.NoError(t, err)

	info, err := client.Discovery().ServerVersion()
	require.NoError(t, err)
	assert.Equal(t, "1.36", info.Major+"."+info.Minor, "clients read the version that the build sets")

	maps := client.CoreV1().ConfigMaps("default")
	_, err = maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	apply := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`)
	for range 2 {
		_, err = maps.Patch(t.Context(), "a", types.ApplyPatchType, apply, metav1.PatchOptions{FieldManager: "test"})
		require.NoError(t, err)
	}
	_, err = maps.Get(t.Context(), "missing", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err))

	var mine []env.AuditEvent
	events, err := e.Audit()
	require.NoError(t, err)
	for _, event := range events {
		if event.UserAgent == "first" && event.Object.Resource == "configmaps" {
			mine = append(mine, event)
		}
	}
	require.Len(t, mine, 4)
	assert.Equal(t, "create configmaps default/a 201", line(mine[0]))
	assert.Equal(t, "patch configmaps default/a 200", line(mine[1]))
	assert.Equal(t, "get configmaps default/missing 404", line(mine[3]))
	assert.NotEqual(t, mine[0].ResourceVersion, mine[1].ResourceVersion)
	assert.Equal(t, mine[1].ResourceVersion, mine[2].ResourceVersion, "the second apply wrote nothing")
	assert.False(t, mine[0].Received.IsZero() || mine[0].Done.Before(mine[0].Received))
	assert.Len(t, env.Changes(mine), 2)

	stopped := time.Now()
	require.NoError(t, e.Stop())
	t.Logf("stopped in %v", time.Since(stopped))
	assert.NoDirExists(t, e.Dir)
}

func line(e env.AuditEvent) string { return fmt.Sprintf("%s %s %d", e.Verb, e.Object, e.Code) }

func TestEnvKeepsItsFolder(t *testing.T) {
	env.NeedControlPlane(t)
	dir := t.TempDir()
	first, err := env.Start(env.Options{Dir: dir, Audit: env.AuditNone})
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", first.Kubeconfig)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	_, err = client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, first.Stop())

	second := env.New(t, env.Options{Dir: dir, Audit: env.AuditNone})
	someone, err := second.User("someone")
	require.NoError(t, err)
	t.Run("adds users for parallel tests", func(t *testing.T) {
		for i := range 4 {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				_, err := second.User(fmt.Sprintf("parallel-%d", i))
				require.NoError(t, err)
			})
		}
	})
	for _, tt := range []struct {
		name string
		want func(error) bool
		by   kubernetes.Interface
	}{
		{"finds the objects of the first start", func(err error) bool { return err == nil }, kubernetes.NewForConfigOrDie(second.Config(""))},
		{"authorizes other users with RBAC", apierrors.IsForbidden, kubernetes.NewForConfigOrDie(someone)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.by.CoreV1().Namespaces().Get(t.Context(), "kept", metav1.GetOptions{})
			assert.True(t, tt.want(err), "%v", err)
		})
	}
}

func TestNothingOutlivesAKilledProcess(t *testing.T) {
	env.NeedControlPlane(t)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"=1")
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	buf := make([]byte, 4096)
	n, err := out.Read(buf)
	require.NoError(t, err)
	dir := strings.TrimSpace(string(buf[:n]))
	var pids []int
	for _, name := range []string{"etcd.pid", "kube-apiserver.pid"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err, dir)
		pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, 0), "the process runs")
		pids = append(pids, pid)
	}

	require.NoError(t, child.Process.Kill())
	_, _ = io.Copy(io.Discard, out)
	_ = child.Wait()
	assert.Eventually(t, func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err) && !running(pids[0]) && !running(pids[1])
	}, time.Minute, 20*time.Millisecond)
}

// running reports whether a process exists and is not a zombie. Orphans stay zombies if no process reaps them.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

func TestStartReportsAMissingBinary(t *testing.T) {
	t.Setenv(env.BinEnv, t.TempDir())
	_, err := env.Start(env.Options{})
	require.ErrorContains(t, err, "make kube-tools")
	require.ErrorContains(t, err, "etcd")
}

func TestStartShowsTheLogOfAFailingServer(t *testing.T) {
	env.NeedControlPlane(t)
	_, err := env.Start(env.Options{APIServerArgs: map[string]string{"feature-gates": "NoSuchGate=true"}})
	require.ErrorContains(t, err, "NoSuchGate")
}

// TestStartIgnoresVariablesOfItsParts has variables with which envtest would use another cluster, and etcd would not start.
func TestStartIgnoresVariablesOfItsParts(t *testing.T) {
	t.Setenv("USE_EXISTING_CLUSTER", "true")
	t.Setenv("ETCD_DATA_DIR", t.TempDir())
	t.Setenv("ETCD_CONFIG_FILE", "none")
	_ = started(t, env.Options{Audit: env.AuditMetadata})
}

// started starts a control plane that no test has used before.
func started(t *testing.T, o env.Options) *env.Env {
	t.Helper()
	env.NeedControlPlane(t)
	e, err := env.Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Stop()) })
	return e
}

func TestGuardedProcessEndsWithTheControlPlane(t *testing.T) {
	env.NeedControlPlane(t)
	e, err := env.Start(env.Options{Audit: env.AuditNone})
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	require.NoError(t, e.Guard("sleep", cmd.Process.Pid))
	require.NoError(t, e.Stop())
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	status, ok := exit.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	assert.Equal(t, syscall.SIGKILL, status.Signal())
}

func TestLaterStartsCreateNothing(t *testing.T) {
	e := started(t, env.Options{Audit: env.AuditWrites})
	client, err := kubernetes.NewForConfig(e.Config(""))
	require.NoError(t, err)
	_, err = client.RbacV1().ClusterRoles().Get(t.Context(), "cluster-admin", metav1.GetOptions{})
	require.NoError(t, err)
	events, err := e.Audit()
	require.NoError(t, err)
	require.NotEmpty(t, events)
	for _, event := range events {
		assert.False(t, event.Verb == "create" && event.Object.Resource == "clusterroles", "%s", line(event))
	}
}

func TestParallelStartsShareASeed(t *testing.T) {
	ring.NeedOuter(t)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	dirs := []string{t.TempDir(), t.TempDir()}
	var starts errgroup.Group
	for _, dir := range dirs {
		starts.Go(func() error {
			e, err := env.Start(env.Options{Dir: dir, Audit: env.AuditNone})
			if err != nil {
				return err
			}
			return e.Stop()
		})
	}
	require.NoError(t, starts.Wait())
	seeds, err := filepath.Glob(filepath.Join(cache, "cvo-test", "etcd-*"))
	require.NoError(t, err)
	require.Len(t, seeds, 1)
	size, err := exec.CommandContext(t.Context(), "du", "-sk", seeds[0]).Output()
	require.NoError(t, err)
	kilobytes, err := strconv.Atoi(strings.Fields(string(size))[0])
	require.NoError(t, err)
	assert.Less(t, kilobytes, 8192, "the space that etcd reserves is not part of a seed")
}

func TestStartNeedsNoCache(t *testing.T) {
	ring.NeedOuter(t)
	t.Setenv("XDG_CACHE_HOME", "/proc/none")
	e, err := env.Start(env.Options{Audit: env.AuditNone})
	require.NoError(t, err)
	require.NoError(t, e.Stop())
}

func TestStartNamesADamagedSeed(t *testing.T) {
	ring.NeedOuter(t)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	e, err := env.Start(env.Options{Audit: env.AuditNone})
	require.NoError(t, err)
	require.NoError(t, e.Stop())
	databases, err := filepath.Glob(filepath.Join(cache, "cvo-test", "etcd-*", "member", "snap", "db"))
	require.NoError(t, err)
	require.Len(t, databases, 1)
	require.NoError(t, os.Truncate(databases[0], 20000))
	_, err = env.Start(env.Options{Audit: env.AuditNone, StartTimeout: 5 * time.Second})
	require.ErrorContains(t, err, "remove it")
	require.ErrorContains(t, err, cache)
}
