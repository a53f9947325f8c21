package command

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestQuoteProtectsArgumentsFromAShell(t *testing.T) {
	for arg, want := range map[string]string{
		"./trust.yaml": "./trust.yaml", "example.com/a:1@sha256:0": "example.com/a:1@sha256:0", "": "''", "my trust.yaml": "'my trust.yaml'",
		"$(id)": "'$(id)'", "it's": `'it'\''s'`,
	} {
		assert.Equal(t, want, Quote(arg))
	}
}
