// Command measure runs the command in its arguments and tells as JSON what that took. It is a small binary of its own
// because Linux charges a process the peak memory of the one that started it, and a test is large.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// cost is what the command took; Memory is the most it had at one time.
type cost struct {
	Wall, CPU time.Duration
	Memory    int64
	Output    string
	Failed    string
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: measure COMMAND [ARGUMENT...]")
		os.Exit(2)
	}
	if err := json.NewEncoder(os.Stdout).Encode(measure(os.Args[1], os.Args[2:]...)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func measure(name string, args ...string) (c cost) {
	cmd := exec.Command(name, args...)
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	c.Wall, c.Output = time.Since(begin), string(out)
	if err != nil {
		c.Failed = err.Error()
	}
	if cmd.ProcessState == nil {
		return c
	}
	c.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		c.Memory = usage.Maxrss * 1024 // Linux counts kilobytes
	}
	return c
}
