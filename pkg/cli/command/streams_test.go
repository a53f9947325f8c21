package command_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/cli/command"
)

func TestMessagesControlNoTerminal(t *testing.T) {
	var errs bytes.Buffer
	streams := command.Streams{Err: &errs}
	streams.Warnf("signatures may be missing: %s", "x  y\x1b[2J\u009b31m\nerror: forged")
	streams.Infof("100%% of %d images", 2)
	assert.Equal(t, "warning: signatures may be missing: x  y?[2J?31m error: forged\ninfo: 100% of 2 images\n", errs.String())
}
