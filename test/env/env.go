// Package env starts a real control plane for tests, demos and benchmarks. It consists of etcd and kube-apiserver only, so that no
// controller, scheduler or garbage collector interferes with the caller. Start takes Options and returns an Env with client configurations,
// a kubeconfig file and the audit log. `make kube-tools` builds the binaries. The caller decides what runs against the API server.
package env

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// Options are the options of a control plane. The zero value works.
type Options struct {
	// Dir receives etcd's data, certificates, logs, the kubeconfig and the audit log, and stays after Stop. A second Start with the same
	// Dir finds the objects of the first. Default: a temporary folder that Stop removes.
	Dir string
	// Audit is the amount of detail in the audit log. Default: AuditMetadata.
	Audit AuditLevel
	// APIServerArgs are additional flags of kube-apiserver without the leading dashes. They override defaults.
	APIServerArgs map[string]string
	// StartTimeout applies to each of the two processes. Default: four minutes.
	StartTimeout time.Duration
}

// Env is a running control plane. Several may run in one process, each with its own ports, data and certificates.
type Env struct {
	// Dir has all files of this control plane, see Options.Dir.
	Dir string
	// Kubeconfig is the path of a kubeconfig file for a user of group system:masters.
	Kubeconfig string
	// AuditLog is the path of the audit log, empty for AuditNone. Audit and Watches read it.
	AuditLog string

	bin      string
	testEnv  *envtest.Environment
	config   *rest.Config
	guard    *guard
	logs     []*os.File
	users    sync.Mutex    // locked while envtest signs a certificate for User
	initial  *clusterState // after the start; nil if the control plane serves one test only
	audit    AuditLevel    // of a control plane that serves several tests
	lent     time.Time     // when the present test got it, if it has served another test
	stopped  atomic.Bool
	stopOnce sync.Once
	stopErr  error
}

// Start starts etcd and kube-apiserver and returns when the API server is ready. If a binary is missing, the error names `make kube-tools`.
// If a process does not start, the error contains the end of its log. The processes end with Stop, and also when the calling process is
// killed.
func Start(o Options) (*Env, error) {
	bin, err := findBinaries()
	if err != nil {
		return nil, err
	}
	e := &Env{Dir: o.Dir, bin: bin}
	if o.Dir == "" {
		if e.Dir, err = os.MkdirTemp("", "cvo-env-"); err != nil {
			return nil, fmt.Errorf("creating a folder for the control plane: %w", err)
		}
	}
	if e.Dir, err = filepath.Abs(e.Dir); err != nil {
		return nil, err
	}
	seed := e.prepare(o)
	if err := e.start(o); err != nil {
		err = fmt.Errorf("starting a control plane in %s: %w%s", e.Dir, err, e.logTails())
		if seed != "" {
			err = fmt.Errorf("%w\nthe data is a copy of %s: if that is damaged, remove it", err, seed)
		}
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

// prepare gives a control plane without data a seed, and returns the folder of the seed. It returns "" for a start without a seed, which only
// takes longer. A server with flags of the caller may not accept the data of a server without them.
func (e *Env) prepare(o Options) string {
	data := e.etcdData()
	if _, err := os.Stat(data); err == nil || len(o.APIServerArgs) > 0 {
		return ""
	}
	kept, err := seed(e.bin, data)
	if err != nil {
		_ = os.RemoveAll(data) // etcd reports what is left
		return ""
	}
	return kept
}

func (e *Env) etcdData() string { return filepath.Join(e.Dir, "etcd") }

// silence keeps controller-runtime from printing a stack trace if a server starts slowly. Only one of several parallel servers may call SetLogger.
var silence = sync.OnceFunc(func() { ctrllog.SetLogger(logr.Discard()) })

func (e *Env) start(o Options) error {
	if err := os.MkdirAll(e.Dir, 0o755); err != nil {
		return err
	}
	var err error
	if e.guard, err = startGuard(e.Dir, o.Dir == ""); err != nil {
		return err
	}
	if err := e.configure(o); err != nil {
		return err
	}
	silence()
	config, err := e.testEnv.Start()
	if err != nil {
		return err
	}
	e.config = rest.CopyConfig(config)
	e.config.QPS, e.config.Burst = -1, 0 // the client's own limiter must not delay what we measure
	e.Kubeconfig = filepath.Join(e.Dir, "kubeconfig")
	return e.writeKubeconfig()
}

func (e *Env) writeKubeconfig() error {
	return os.WriteFile(e.Kubeconfig, e.testEnv.KubeConfig, 0o600)
}

// flags are the flags of kube-apiserver that differ from envtest's.
var flags = map[string]string{
	// A release has some sixty Services, and several test releases have more. envtest's range of 254 addresses is too small.
	"service-cluster-ip-range": "10.0.0.0/16",
	// The server chooses node ports at random. A large range makes collisions with the ports in tests unlikely.
	"service-node-port-range": "30000-65535",
}

// configure prepares the envtest environment. It starts nothing.
func (e *Env) configure(o Options) error {
	timeout := o.StartTimeout
	if timeout == 0 {
		timeout = 4 * time.Minute // envtest notices a process that ends
	}
	e.testEnv = &envtest.Environment{
		UseExistingCluster:       new(bool), // whatever USE_EXISTING_CLUSTER says
		ControlPlaneStartTimeout: timeout,
		ControlPlaneStopTimeout:  time.Minute,
	}

	etcd := &envtest.Etcd{DataDir: e.etcdData()}
	server := &envtest.APIServer{CertDir: filepath.Join(e.Dir, "kube-apiserver")}
	e.testEnv.ControlPlane.Etcd, e.testEnv.ControlPlane.APIServer = etcd, server
	// envtest loads the CA only if it creates the certificates itself.
	if err := os.RemoveAll(server.CertDir); err != nil {
		return err
	}
	for _, dir := range []string{etcd.DataDir, server.CertDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	for _, p := range []struct {
		name     string
		path     *string
		out, err *io.Writer
	}{
		{etcdName, &etcd.Path, &etcd.Out, &etcd.Err},
		{apiServerName, &server.Path, &server.Out, &server.Err},
	} {
		var err error
		if *p.path, err = e.guard.wrap(p.name, filepath.Join(e.bin, p.name)); err != nil {
			return err
		}
		log, err := e.log(p.name)
		if err != nil {
			return err
		}
		*p.out, *p.err = log, log
	}

	args := server.Configure()
	for name, value := range flags {
		args.Set(name, value)
	}
	if err := e.configureAudit(o.Audit, args); err != nil {
		return err
	}
	if gates := os.Getenv(GatesEnv); gates != "" {
		args.Set("feature-gates", gates)
	}
	for _, name := range slices.Sorted(maps.Keys(o.APIServerArgs)) {
		args.Set(name, o.APIServerArgs[name])
	}
	return nil
}

// log opens the log file of a process, <dir>/<process>.log.
func (e *Env) log(name string) (*os.File, error) {
	file, err := os.Create(filepath.Join(e.Dir, name+".log"))
	if err != nil {
		return nil, err
	}
	e.logs = append(e.logs, file)
	return file, nil
}

// logTails returns the end of every log, for the error about a control plane that does not start.
func (e *Env) logTails() string {
	const lines = 5
	var out strings.Builder
	for _, log := range e.logs {
		data, err := os.ReadFile(log.Name())
		text := strings.TrimSpace(string(data))
		if err != nil || text == "" {
			continue
		}
		all := strings.Split(text, "\n")
		fmt.Fprintf(&out, "\nend of %s:\n%s", filepath.Base(log.Name()), strings.Join(all[max(0, len(all)-lines):], "\n"))
	}
	return out.String()
}

// Config returns a client configuration for a user of group system:masters, without a client-side rate limit. The user agent names the
// client in the audit log; if it is empty, client-go's default is used.
func (e *Env) Config(userAgent string) *rest.Config {
	config := rest.CopyConfig(e.config)
	config.UserAgent = userAgent
	return config
}

// User returns a client configuration for another user, who authenticates with a certificate. The RBAC objects in the cluster determine the
// user's permissions. Parallel tests may call User: it takes a lock, because envtest's certificate authority counts serial numbers without
// one.
func (e *Env) User(name string, groups ...string) (*rest.Config, error) {
	e.users.Lock()
	defer e.users.Unlock()
	user, err := e.testEnv.AddUser(envtest.User{Name: name, Groups: groups}, &rest.Config{QPS: -1})
	if err != nil {
		return nil, fmt.Errorf("adding user %q: %w", name, err)
	}
	return rest.CopyConfig(user.Config()), nil
}

// Processes returns the ids of the running processes: etcd and kube-apiserver.
func (e *Env) Processes() []int {
	var ids []int
	for _, name := range []string{etcdName, apiServerName} {
		if id, err := e.guard.pid(name); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// Stop ends both processes and removes the folder unless Options.Dir named it. It may be called more than once.
func (e *Env) Stop() error {
	e.stopped.Store(true)
	e.stopOnce.Do(func() {
		var errs []error
		if e.testEnv != nil {
			errs = append(errs, e.end())
		}
		if e.guard != nil {
			errs = append(errs, e.guard.stop())
		}
		for _, log := range e.logs {
			errs = append(errs, log.Close())
		}
		e.stopErr = errors.Join(errs...)
	})
	return e.stopErr
}

// end stops the processes. The first signal starts a graceful shutdown of the API server, which waits for open watches. The second makes it
// exit at once. Two signals in quick succession may arrive as one, so end repeats them until the process has ended.
func (e *Env) end() error {
	e.guard.terminate(apiServerName)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		again := time.NewTicker(300 * time.Millisecond)
		defer again.Stop()
		for {
			select {
			case <-ended:
				return
			case <-again.C:
				e.guard.terminate(apiServerName)
			}
		}
	}()
	return e.testEnv.Stop()
}
