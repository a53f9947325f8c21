package cli_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
)

// answer runs cvo on a terminal on which a user has typed a text. With an empty text, the user interrupts the question.
func answer(ctx context.Context, t *testing.T, text string, args ...string) (stderr string, err error) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	defer user.Close()
	require.NoError(t, unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	in, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer in.Close()
	_, err = user.WriteString(text)
	require.NoError(t, err)
	ctx, interrupt := context.WithCancel(ctx)
	defer interrupt()
	errs := &interrupting{at: "Type yes to continue: ", interrupt: func() {
		if text == "" {
			interrupt()
		}
	}}
	cmd := cli.New(command.Streams{In: in, Out: io.Discard, Err: errs})
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(ctx)
	return errs.String(), err
}
