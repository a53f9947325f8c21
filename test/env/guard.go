package env

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// guard ensures that no server outlives this process, even if it is killed. A shell waits for the end of its standard input, which comes
// when we close it or die. The shell then kills the processes in the pid files. A parent-death signal would not work, because it depends on
// the forking thread and not every system has one.
type guard struct {
	dir   string
	cmd   *exec.Cmd
	stdin io.Closer
}

const guardScript = `trap '' INT TERM HUP
cat >/dev/null
for f in "$1"/*.pid; do
  [ -f "$f" ] && kill -KILL "-$(cat "$f")" 2>/dev/null
done
[ "$2" = remove ] && rm -rf "$1"
exit 0`

// startGuard starts the shell. If remove is set, the shell deletes the folder at the end.
func startGuard(dir string, remove bool) (*guard, error) {
	what := "keep"
	if remove {
		what = "remove"
	}
	g := &guard{dir: dir, cmd: exec.Command("sh", "-c", guardScript, "env-guard", dir, what)}
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal to our process group must not reach the guard
	stdin, err := g.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	g.stdin = stdin
	if err := g.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the guard of the control plane: %w", err)
	}
	return g, nil
}

// wrap writes a script that records its process id and its arguments, because envtest reveals neither, and then executes the binary.
func (g *guard) wrap(name, binary string) (string, error) {
	// etcd reads its settings from variables too, and ends if one contradicts a flag.
	script := fmt.Sprintf("#!/bin/sh\necho $$ > %s\nprintf '%%s\\n' \"$@\" > %s\nunset $(env | sed -n 's/^\\(ETCD_[A-Z0-9_]*\\)=.*/\\1/p')\nexec %s \"$@\"\n",
		quote(g.pidFile(name)), quote(g.argsFile(name)), quote(binary))
	return g.script(name), os.WriteFile(g.script(name), []byte(script), 0o755)
}

func (g *guard) script(name string) string   { return filepath.Join(g.dir, name+".sh") }
func (g *guard) pidFile(name string) string  { return filepath.Join(g.dir, name+".pid") }
func (g *guard) argsFile(name string) string { return filepath.Join(g.dir, name+".args") }

// terminate sends SIGTERM to the process group of a wrapped binary if it runs.
func (g *guard) terminate(name string) {
	_ = g.signal(name, syscall.SIGTERM) // the process may have ended
}

// stop ends the guard, which kills any remaining processes.
func (g *guard) stop() error {
	if err := g.stdin.Close(); err != nil {
		return err
	}
	return g.cmd.Wait()
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Guard ties a process of the caller to the control plane: the process ends at Stop, or when the calling process is killed. It must lead a
// process group. name distinguishes its pid file from those of other processes.
func (e *Env) Guard(name string, pid int) error {
	if err := os.WriteFile(e.guard.pidFile(name), []byte(strconv.Itoa(pid)), 0o600); err != nil {
		return fmt.Errorf("guarding %s: %w", name, err)
	}
	return nil
}
