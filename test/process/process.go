package main

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

// process is a running binary with its output in a log file.
type process struct {
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
}

func (b *bench) start(kubeconfig, name, path string, args ...string) (*process, error) {
	log, err := os.CreateTemp(b.logs, name+"-*.log")
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(path, args...), log: log.Name(), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // the process may have been killed
		_ = log.Close()
	}()
	return p, nil
}

// stop asks the process to end and kills it if it does not.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

func (p *process) tail() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-4000):])
}

// usage is the kernel's accounting of a process, read from /proc. It is empty on systems without /proc.
type usage struct {
	cpu     float64 // seconds so far
	peakMiB float64 // peak of resident memory since the last reset
	fileMiB float64 // current share of the binary
}

// ticks is the number of ticks per second in /proc/*/stat: USER_HZ, which is 100 on all platforms of Go.
const ticks = 100

func (p *process) usage() usage { return usageOf(p.cmd.Process.Pid) }

func usageOf(pid int) usage {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	var u usage
	if stat, err := os.ReadFile(filepath.Join(dir, "stat")); err == nil {
		// The second field is the command in parentheses and may contain spaces. utime and stime are the fields 14 and 15.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 12 {
			user, _ := strconv.ParseFloat(fields[11], 64)
			system, _ := strconv.ParseFloat(fields[12], 64)
			u.cpu = (user + system) / ticks
		}
	}
	if status, err := os.ReadFile(filepath.Join(dir, "status")); err == nil {
		u.peakMiB, u.fileMiB = mebibytes(string(status), "VmHWM:"), mebibytes(string(status), "RssFile:")
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

// resetPeak resets the peak, so that each phase has its own.
func (p *process) resetPeak() {
	_ = os.WriteFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "clear_refs"), []byte("5"), 0)
}
