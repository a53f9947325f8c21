package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// cvo runs a command of cvo, adds a note about it, and returns its output.
func (d *demo) cvo(ctx context.Context, args ...string) (string, error) {
	d.teller.note(note{kind: commandNote, detail: true, text: "cvo " + commandLine(args)})
	cmd := exec.CommandContext(ctx, d.options.cvo, args...)
	cmd.Env = d.environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ctx ends it on Ctrl-C
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil && ctx.Err() == nil {
		return "", fmt.Errorf("cvo %s: %w\n%s", commandLine(args), err, strings.TrimSpace(errs.String()))
	}
	return string(out), err
}

// commandLine returns a command as a user would type it.
func commandLine(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		if strings.ContainsAny(arg, " '\"{}$") {
			arg = "'" + arg + "'"
		}
		quoted[i] = arg
	}
	return strings.Join(quoted, " ")
}

func (d *demo) environment() []string {
	environ := os.Environ()
	if d.control != nil {
		environ = append(environ, "KUBECONFIG="+d.control.Kubeconfig)
	}
	return environ
}

// process is a running program.
type process struct {
	name   string
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // set before exited is closed
}

func (d *demo) log() string { return filepath.Join(d.dir, "cvo.log") }

// nodeLog is the log of the node stage.
func (d *demo) nodeLog() string { return filepath.Join(d.dir, "cvo-node.log") }

// startProcess starts a command of a program that keeps running. Its output is added to the log.
func (d *demo) startProcess(program, log string, args ...string) (*process, error) {
	p := &process{name: filepath.Base(program), cmd: exec.Command(program, args...), exited: make(chan struct{})}
	d.teller.note(note{kind: commandNote, detail: true, text: p.name + " " + commandLine(args)})
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	p.cmd.Env = d.environment()
	p.cmd.Stdout, p.cmd.Stderr = output, output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, output.Close())
	}
	go func() {
		defer close(p.exited)
		p.err = p.cmd.Wait()
		_ = output.Close()
	}()
	return p, d.control.Guard(p.name, p.cmd.Process.Pid)
}

// running returns an error if the process has ended.
func (p *process) running() error {
	select {
	case <-p.exited:
		return fmt.Errorf("%s has ended: %w", p.name, errors.Join(p.err))
	default:
		return nil
	}
}

// stopTimeout is how long a process may take to end. Releasing its Lease takes well under a second.
const stopTimeout = 10 * time.Second

// stop asks the process to end and kills it if it does not.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-p.exited:
		return nil
	case <-time.After(stopTimeout):
	}
	err := p.cmd.Process.Kill()
	<-p.exited
	return err
}

// freeAddress finds a port for the operator to listen on.
func freeAddress(ctx context.Context) (string, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

// logTails returns the ends of the logs for errors.
func (d *demo) logTails() string {
	var tails strings.Builder
	for _, log := range []string{d.nodeLog(), d.log()} {
		if data, err := os.ReadFile(log); err == nil {
			lines := strings.Split(strings.TrimSpace(string(data)), "\n")
			fmt.Fprintf(&tails, "\nend of %s:\n%s", filepath.Base(log), strings.Join(lines[max(0, len(lines)-15):], "\n"))
		}
	}
	return tails.String()
}
