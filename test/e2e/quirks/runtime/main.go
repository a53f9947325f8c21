// Command runtime is an OCI runtime for machines without CAP_SYS_RESOURCE, such as some sandboxes. On such a machine, runc cannot start a
// privileged container: it cannot pass on a capability that it lacks, raise limits, or protect processes from the OOM killer. This program
// removes these settings from the container's configuration and then executes the real runc: the file next to it with the suffix ".real",
// or else the first runc in PATH.
//
// Tests do not notice the difference: the kernel limits are those of the machine's own processes.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const withheld = "CAP_SYS_RESOURCE"

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "runtime:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	file, isProcess := configuration(args[1:])
	if file != "" {
		if err := rewrite(file, isProcess); err != nil {
			return err
		}
	}
	next, err := realRunc()
	if err != nil {
		return err
	}
	return fmt.Errorf("starting %s: %w", next, syscall.Exec(next, append([]string{next}, args[1:]...), os.Environ()))
}

func realRunc() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program: %w", err)
	}
	original := self + ".real"
	if _, err := os.Stat(original); err == nil {
		return original, nil
	}
	return exec.LookPath("runc")
}

// configuration returns the file with the configuration of a command that starts processes. isProcess reports that the file describes only
// a process instead of a whole container. Other commands have no such file.
func configuration(args []string) (file string, isProcess bool) {
	command, rest := subcommand(args)
	switch command {
	case "create", "run", "restore":
		return filepath.Join(flag(rest, "bundle", "b"), "config.json"), false
	case "exec":
		return flag(rest, "process", "p"), true
	}
	return "", false
}

// subcommand skips global flags. Only a few of runc's take a value.
func subcommand(args []string) (command string, rest []string) {
	valued := []string{"root", "log", "log-format", "criu", "rootless"}
	for i := 0; i < len(args); i++ {
		name, isFlag := strings.CutPrefix(args[i], "-")
		if !isFlag {
			return args[i], args[i+1:]
		}
		if slices.Contains(valued, strings.TrimPrefix(name, "-")) {
			i++
		}
	}
	return "", nil
}

// flag returns the value of --name V, --name=V, -short V or -short=V. runc accepts one dash instead of two.
func flag(args []string, names ...string) string {
	for i, arg := range args {
		name, value, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") || !slices.Contains(names, name) {
			continue
		}
		if hasValue {
			return value
		}
		if i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

func rewrite(file string, isProcess bool) error {
	raw, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil // runc reports it better
	}
	if err != nil {
		return fmt.Errorf("reading the container's configuration: %w", err)
	}
	changed, err := strip(raw, isProcess)
	if err != nil {
		return fmt.Errorf("changing %s: %w", file, err)
	}
	if err := os.WriteFile(file, changed, 0o600); err != nil {
		return fmt.Errorf("writing the container's configuration: %w", err)
	}
	return nil
}

// strip removes the settings that the machine does not allow. It keeps every other byte.
func strip(raw []byte, isProcess bool) ([]byte, error) {
	var document map[string]json.RawMessage
	if err := json.Unmarshal(raw, &document); err != nil {
		return nil, err
	}
	if isProcess {
		return stripProcess(document)
	}
	if len(document["process"]) == 0 {
		return raw, nil
	}
	var process map[string]json.RawMessage
	if err := json.Unmarshal(document["process"], &process); err != nil {
		return nil, fmt.Errorf("parsing process: %w", err)
	}
	stripped, err := stripProcess(process)
	if err != nil {
		return nil, err
	}
	document["process"] = stripped
	return json.Marshal(document)
}

func stripProcess(process map[string]json.RawMessage) ([]byte, error) {
	delete(process, "rlimits")
	delete(process, "oomScoreAdj")
	if raw, has := process["capabilities"]; has {
		var sets map[string][]string
		if err := json.Unmarshal(raw, &sets); err != nil {
			return nil, fmt.Errorf("parsing capabilities: %w", err)
		}
		for name, set := range sets {
			sets[name] = slices.DeleteFunc(set, func(c string) bool { return c == withheld })
		}
		changed, err := json.Marshal(sets)
		if err != nil {
			return nil, err
		}
		process["capabilities"] = changed
	}
	return json.Marshal(process)
}
