package command

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestConfirmNeedsATerminal(t *testing.T) {
	var errs bytes.Buffer
	err := Confirm(t.Context(), Streams{In: strings.NewReader("yes\n"), Err: &errs}, "remove the\x1b[31m operator", func() error { panic("not asked") })
	require.ErrorContains(t, err, "without confirmation: add --yes, because there is no terminal to ask on")
	assert.NotContains(t, err.Error(), "\x1b")
	assert.Equal(t, ExitRefused, ExitCode(err))
	assert.Empty(t, errs.String())
}

func TestOnlyYesConfirms(t *testing.T) {
	for answer, want := range map[string]bool{"yes\n": true, " Y \n": true, "y": true, "": false, "\n": false, "no\n": false, "yes please\n": false, "yy": false} {
		assert.Equal(t, want, isYes(answer), "%q", answer)
	}
}
