package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cluster-version/cvo/internal/terminal"
)

// maxAnswer is the largest answer to a question, in bytes.
const maxAnswer = 1 << 10

// Confirm asks for confirmation of an action, such as "remove the operator". It returns a RefusedError unless the answer is yes, and if
// there is no terminal to ask on: then --yes is required. Before the question, it calls explain, unless that is nil. The end of ctx ends the
// question.
func Confirm(ctx context.Context, streams Streams, action string, explain func() error) error {
	action = terminal.OneLine(action)
	if file, ok := streams.In.(*os.File); !ok || !terminal.IsTerminal(file) {
		return &RefusedError{Err: fmt.Errorf("refusing to %s without confirmation: add --yes, because there is no terminal to ask on", action)}
	}
	if explain != nil {
		if err := explain(); err != nil {
			return err
		}
	}
	fmt.Fprintf(streams.Err, "%s%s? Type yes to continue: ", strings.ToUpper(action[:1]), action[1:])
	read := make(chan error, 1)
	var answer string
	go func() { // an interrupt does not end a read from a terminal
		var err error
		answer, err = bufio.NewReader(io.LimitReader(streams.In, maxAnswer)).ReadString('\n')
		read <- err
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(streams.Err) // the question has no line break
		interrupted := &StateError{Code: ExitInterrupted, Err: errors.New("interrupted: nothing was changed")}
		PrintError(streams.Err, interrupted.Err) // main does not print StateErrors
		return interrupted
	case err := <-read:
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return fmt.Errorf("reading the answer: %w", err)
		case !isYes(answer):
			return &RefusedError{Err: errors.New("not confirmed: nothing was changed")}
		}
		return nil
	}
}

func isYes(answer string) bool {
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "yes" || answer == "y"
}
