// Command measure runs the command in its arguments and prints its cost as JSON. It is a separate small binary, because Linux charges a
// process with the peak memory of its parent, and tests are large.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// cost is the time and the memory of a command. Memory is the peak in bytes.
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
		c.Memory = usage.Maxrss * 1024 // Linux reports kilobytes
	}
	return c
}
