package env

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/internal/backoff"
	"github.com/cluster-version/cvo/test/fault"
)

// PauseEtcd stops etcd as a hanging disk does, and returns a function that resumes it. In between, the API server answers hardly any
// request.
func (e *Env) PauseEtcd() (resume func() error, err error) {
	if err := e.guard.signal(etcdName, syscall.SIGSTOP); err != nil {
		return nil, fmt.Errorf("pausing etcd: %w", err)
	}
	return func() error {
		if err := e.guard.signal(etcdName, syscall.SIGCONT); err != nil {
			return fmt.Errorf("resuming etcd: %w", err)
		}
		return nil
	}, nil
}

// KillAPIServer ends the API server at once, as a crash does. Connections break, and new ones are refused.
func (e *Env) KillAPIServer() error {
	if err := e.guard.signal(apiServerName, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing the API server: %w", err)
	}
	return nil
}

// StartAPIServer restarts a killed API server with the same port, certificates and data. It returns when the API server is ready. It tries
// again for a while if an outgoing connection has taken the port meanwhile.
func (e *Env) StartAPIServer(ctx context.Context) error {
	for begin := time.Now(); ; {
		before, err := e.apiServerLog()
		if err != nil {
			return err
		}
		failed := e.restartAPIServer(ctx)
		after, err := e.apiServerLog()
		if failed == nil || err != nil || time.Since(begin) > fault.PortPatience || !strings.Contains(after[len(before):], syscall.EADDRINUSE.Error()) {
			return failed
		}
		if err := backoff.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

func (e *Env) apiServerLog() (string, error) {
	log, err := os.ReadFile(filepath.Join(e.Dir, apiServerName+".log"))
	return string(log), err
}

func (e *Env) restartAPIServer(ctx context.Context) error {
	args, err := os.ReadFile(e.guard.argsFile(apiServerName))
	if err != nil {
		return fmt.Errorf("restarting the API server: %w", err)
	}
	log, err := os.OpenFile(filepath.Join(e.Dir, apiServerName+".log"), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("restarting the API server: %w", err)
	}
	defer log.Close()
	// The wrapper records the new process for the guard, which ends it with the control plane.
	cmd := exec.Command(e.guard.script(apiServerName), strings.Split(string(bytes.TrimSuffix(args, []byte("\n"))), "\n")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("restarting the API server: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return e.awaitReady(ctx, ended)
}

func (e *Env) awaitReady(ctx context.Context, ended <-chan error) error {
	config := rest.CopyConfig(e.config)
	config.Timeout = 2 * time.Second // for each attempt
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		_, unready := client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if unready == nil {
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("the API server ended: %w%s", err, e.logTails())
		case <-ctx.Done():
			return fmt.Errorf("waiting for the API server: %w: %w%s", ctx.Err(), unready, e.logTails())
		case <-again.C:
		}
	}
}

// signal sends a signal to the process group of a wrapped binary.
func (g *guard) signal(name string, sig syscall.Signal) error {
	pid, err := g.pid(name)
	if err != nil {
		return err
	}
	return syscall.Kill(-pid, sig)
}

// pid returns the process id of a wrapped binary.
func (g *guard) pid(name string) (int, error) {
	data, err := os.ReadFile(g.pidFile(name))
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || pid <= 1 {
		return 0, errors.New("the process was not started")
	}
	return pid, nil
}
