package command

import (
	"bufio"
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
// there is no terminal to ask on: then --yes is required. Before the question, it calls explain, unless that is nil.
func Confirm(streams Streams, action string, explain func() error) error {
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
	answer, err := bufio.NewReader(io.LimitReader(streams.In, maxAnswer)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if !isYes(answer) {
		return &RefusedError{Err: errors.New("not confirmed: nothing was changed")}
	}
	return nil
}

func isYes(answer string) bool {
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "yes" || answer == "y"
}
