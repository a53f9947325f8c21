// Package docker runs the docker command.
package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// Run runs docker with arguments and returns its trimmed stdout. An error contains its stderr.
func Run(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	var stdout bytes.Buffer
	err := Pipe(ctx, stdin, &stdout, args...)
	return strings.TrimSpace(stdout.String()), err
}

// Pipe runs docker with arguments and copies its stdout unchanged.
func Pipe(ctx context.Context, stdin io.Reader, stdout io.Writer, args ...string) error {
	command := exec.CommandContext(ctx, "docker", args...)
	var stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = stdin, stdout, &stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("running docker %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// AwaitNetwork waits until a network exists.
func AwaitNetwork(ctx context.Context, name string) error {
	for {
		_, err := Run(ctx, nil, "network", "inspect", name)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the network %s: %w", name, errors.Join(ctx.Err(), err))
		case <-time.After(200 * time.Millisecond):
		}
	}
}
