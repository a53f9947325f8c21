package integration_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// endPatience is how long a process may take to end after SIGTERM.
	endPatience = time.Minute
	// dumpPatience is how long a process may take to write its stacks after SIGQUIT.
	dumpPatience = 10 * time.Second
	// restartDelay is the kubelet's delay. The first restart is immediate, the next one waits for the delay, and the delay doubles each
	// time.
	restartDelay = 10 * time.Second
	// reportedError is the exit code of a process that ends with an error. A panic has another one.
	reportedError = 1
)

// process is one of our running binaries. With restarts it is restarted whenever it ends by itself, as the pod of a Deployment is: an
// operator ends if it loses its Lease on a busy machine, and most tests are not about that.
type process struct {
	// log is a file with the log of all starts.
	log string
	// exited is closed when the process has ended and is not restarted.
	exited chan struct{}

	command func() *exec.Cmd
	note    func(format string, args ...any)
	stop    chan struct{}

	mu       sync.Mutex
	current  *exec.Cmd
	restarts bool
	starts   int
}

// launch starts a binary of this package with arguments and additional environment variables. note is called for each restart.
func launch(log *os.File, note func(format string, args ...any), restarts bool, environment []string, name string, args ...string) (*process, error) {
	proc := &process{log: log.Name(), exited: make(chan struct{}), stop: make(chan struct{}), restarts: restarts, note: note}
	proc.command = func() *exec.Cmd {
		cmd := exec.Command(filepath.Join(binaries, name), args...)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.Env = append(os.Environ(), environment...)
		return cmd
	}
	first := proc.command()
	if err := first.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	proc.current, proc.starts = first, 1
	go func() {
		defer close(proc.exited)
		defer log.Close()
		proc.supervise(first)
	}()
	return proc, nil
}

// supervise returns when the process has ended and must not be restarted.
func (proc *process) supervise(cmd *exec.Cmd) {
	for delay := time.Duration(0); ; delay = max(restartDelay, 2*delay) {
		err := cmd.Wait()
		// A lost Lease is an error that the process reports. A panic, or a signal that no test sent, is a bug, so the process is not
		// restarted.
		if !proc.isRestarted() || cmd.ProcessState.ExitCode() != reportedError {
			return
		}
		proc.note("%s ended by itself (%v) and is restarted after %s:\n%s", filepath.Base(cmd.Path), err, delay, tail(proc.log))
		select {
		case <-proc.stop:
			return
		case <-time.After(delay):
		}
		proc.mu.Lock()
		if proc.restarts {
			cmd = proc.command()
			err = cmd.Start()
			proc.current = cmd
			proc.starts++
		}
		restarted := proc.restarts && err == nil
		proc.mu.Unlock()
		if !restarted {
			return
		}
	}
}

func (proc *process) isRestarted() bool {
	proc.mu.Lock()
	defer proc.mu.Unlock()
	return proc.restarts
}

// letEnd ends the restarts, for tests about the end of the process.
func (proc *process) letEnd() {
	proc.mu.Lock()
	defer proc.mu.Unlock()
	if proc.restarts {
		proc.restarts = false
		close(proc.stop)
	}
}

// started returns the number of starts of the process.
func (proc *process) started() int {
	proc.mu.Lock()
	defer proc.mu.Unlock()
	return proc.starts
}

// pid returns the id of the running or last process.
func (proc *process) pid() int {
	proc.mu.Lock()
	defer proc.mu.Unlock()
	return proc.current.Process.Pid
}

// signal sends a signal unless the process has already ended.
func (proc *process) signal(sig os.Signal) error {
	proc.mu.Lock()
	defer proc.mu.Unlock()
	if err := proc.current.Process.Signal(sig); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// exitCode returns the exit code of the ended process.
func (proc *process) exitCode() int {
	<-proc.exited
	return proc.current.ProcessState.ExitCode()
}

func (proc *process) kill() {
	proc.letEnd()
	_ = proc.signal(syscall.SIGKILL) // the process may have ended
	<-proc.exited
}

// end stops the process gracefully. An operator then releases its Lease; the Lease of a killed operator has to expire.
func (proc *process) end(t *testing.T) {
	t.Helper()
	proc.letEnd()
	require.NoError(t, proc.signal(syscall.SIGTERM))
	proc.awaitEnd(t)
}

// awaitEnd waits until a process that was asked to end has ended. If it does not end, awaitEnd prints its goroutines.
func (proc *process) awaitEnd(t *testing.T) {
	t.Helper()
	select {
	case <-proc.exited:
		return
	case <-time.After(endPatience):
	}
	before := tail(proc.log)
	info, err := os.Stat(proc.log)
	require.NoError(t, err)
	require.NoError(t, proc.signal(syscall.SIGQUIT))
	select {
	case <-proc.exited:
	case <-time.After(dumpPatience):
	}
	data, err := os.ReadFile(proc.log)
	require.NoError(t, err)
	require.FailNow(t, fmt.Sprintf("the process did not end within %s", endPatience), "%s\n%s", before, data[info.Size():])
}

// logged waits until the process has logged a text.
func (proc *process) logged(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(proc.log)
		return err == nil && strings.Contains(string(data), text)
	}, time.Minute, 5*time.Millisecond, "waiting for %q in the log", text)
}

// start runs a binary until the test ends. If the test fails, it prints the log.
func (p *platform) start(name string, args ...string) *process {
	p.t.Helper()
	return p.launch(false, name, args...)
}

// keep runs a binary like start and restarts it whenever it ends by itself.
func (p *platform) keep(name string, args ...string) *process {
	p.t.Helper()
	return p.launch(true, name, args...)
}

func (p *platform) launch(restarts bool, name string, args ...string) *process {
	p.t.Helper()
	log, err := os.CreateTemp(p.dir, name+"-*.log")
	require.NoError(p.t, err)
	t := p.t // the current chapter's test
	proc, err := launch(log, t.Logf, restarts, append([]string{"KUBECONFIG=" + p.env.Kubeconfig}, p.environment...), name, args...)
	require.NoError(t, err)
	t.Cleanup(func() {
		proc.kill()
		if t.Failed() {
			t.Logf("%s %v:\n%s", name, args, tail(proc.log))
		}
	})
	return proc
}

func tail(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-6000):])
}

// TestEndedProcessIsRestarted starts an operator that reports an error at once, because its kubeconfig is missing.
func TestEndedProcessIsRestarted(t *testing.T) {
	t.Parallel()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	noted := make(chan string, 1)
	note := func(format string, args ...any) {
		select {
		case noted <- fmt.Sprintf(format, args...):
		default:
		}
	}
	missing := filepath.Join(t.TempDir(), "kubeconfig")
	proc, err := launch(log, note, true, nil, "cvo", "start", "--release-image", "registry.example.com/release:1.0.0", "--kubeconfig", missing)
	require.NoError(t, err)
	t.Cleanup(proc.kill)
	select {
	case why := <-noted:
		require.Contains(t, why, missing, "the note shows why")
	case <-proc.exited:
		require.FailNow(t, "the process is not restarted", "exit code %d:\n%s", proc.exitCode(), tail(log.Name()))
	}
	require.Eventually(t, func() bool { return proc.started() == 2 }, time.Minute, time.Millisecond)
	proc.end(t)
	require.NotZero(t, proc.exitCode())
	require.Equal(t, 2, proc.started(), "the process is not restarted after it was asked to end")
}
