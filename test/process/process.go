// Package process runs programs for benchmarks: each with its output in a log file, and with the kernel's accounting of its processor time and
// memory.
package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a running program.
type Process struct {
	// Exited is closed when the program has ended.
	Exited chan struct{}

	cmd *exec.Cmd
	log string
}

// Start starts a program with its output in a new file of folder logs, whose name starts with name. environ is added to the environment. The
// process leads a process group.
func Start(logs, name string, environ []string, program string, args ...string) (*Process, error) {
	log, err := os.CreateTemp(logs, name+"-*.log")
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(program, args...), log: log.Name(), Exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(os.Environ(), environ...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go func() {
		defer close(p.Exited)
		_ = p.cmd.Wait() // the process may have been killed
		_ = log.Close()
	}()
	return p, nil
}

// ID returns the id of the process.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// Stop asks the process to end and kills it if it does not.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.Exited:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.Exited
	}
}

// Tail returns the end of the log.
func (p *Process) Tail() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-4000):])
}

// Usage is the kernel's accounting of a process, read from /proc. It is empty on systems without /proc.
type Usage struct {
	CPU     float64 // seconds so far
	PeakMiB float64 // peak of resident memory since the last reset
	FileMiB float64 // current share of the binary
}

// ticks is the number of ticks per second in /proc/*/stat: USER_HZ, which is 100 on all platforms of Go.
const ticks = 100

// Usage returns the usage of the process.
func (p *Process) Usage() Usage { return UsageOf(p.ID()) }

// UsageOf returns the usage of the process with an id.
func UsageOf(pid int) Usage {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	var u Usage
	if stat, err := os.ReadFile(filepath.Join(dir, "stat")); err == nil {
		// The second field is the command in parentheses and may contain spaces. utime and stime are the fields 14 and 15.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 12 {
			user, _ := strconv.ParseFloat(fields[11], 64)
			system, _ := strconv.ParseFloat(fields[12], 64)
			u.CPU = (user + system) / ticks
		}
	}
	if status, err := os.ReadFile(filepath.Join(dir, "status")); err == nil {
		u.PeakMiB, u.FileMiB = mebibytes(string(status), "VmHWM:"), mebibytes(string(status), "RssFile:")
	}
	return u
}

// mebibytes reads a line of /proc/*/status, 0 if it is missing.
func mebibytes(status, key string) float64 {
	_, after, _ := strings.Cut(status, key)
	var kib float64
	if _, err := fmt.Sscan(after, &kib); err != nil {
		return 0
	}
	return kib / 1024
}

// ResetPeak resets the peak, so that each phase has its own.
func (p *Process) ResetPeak() {
	_ = os.WriteFile(filepath.Join("/proc", strconv.Itoa(p.ID()), "clear_refs"), []byte("5"), 0)
}
