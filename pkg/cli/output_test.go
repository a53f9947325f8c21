package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// structured prints a value in both formats and reads it again.
func structured(t *testing.T, text string) (asJSON, asYAML string) {
	t.Helper()
	value := map[string]string{"text": text, text + " as key": "x"}
	var j, y bytes.Buffer
	require.NoError(t, writeJSON(&j, value))
	require.NoError(t, writeYAML(&y, value))
	var fromJSON, fromYAML map[string]string
	require.NoError(t, json.Unmarshal(j.Bytes(), &fromJSON))
	require.NoError(t, yaml.Unmarshal(y.Bytes(), &fromYAML), y.String())
	assert.Equal(t, value, fromJSON)
	assert.Equal(t, value, fromYAML)
	assert.NotContains(t, strings.Map(steering, j.String()), "!")
	assert.NotContains(t, strings.Map(steering, y.String()), "!")
	return j.String(), y.String()
}

// steering keeps nothing but an exclamation mark for each character that steers a terminal.
func steering(r rune) rune {
	if steers(r) {
		return '!'
	}
	return -1
}

func TestStructuredOutputSteersNoTerminal(t *testing.T) {
	for _, tt := range []struct{ name, text, json, yaml string }{
		{"it leaves text alone", "naïve — 日本 😀 <a&b>", `"naïve — 日本 😀 \u003ca\u0026b\u003e"`, `text: "naïve — 日本 \U0001F600 <a&b>"`},
		{"it escapes a control sequence introducer of one character", "\u009b31m", `"\u009b31m"`, ""},
		{"it keeps a next line what it is", "a\u0085b", `"a\u0085b"`, ""},
		{"it escapes delete", "a\x7fb", `"a\u007fb"`, ""},
		{"it escapes what turns the direction of writing", "a\u202eb", `"a\u202eb"`, `"a\U0000202eb"`},
		{"it escapes what cannot be seen", "a\u200bb\ufeff", `"a\u200bb\ufeff"`, `"a\U0000200bb\U0000feff"`},
		{"it escapes beyond the basic plane", "a\U000e0001b", `"a\udb40\udc01b"`, ""},
		{"it knows line separators", "a\u2028b\nc", `"a\u2028b\nc"`, ""},
		{"it does not trip over an escape in the text", `\u009b \\` + "\u009b", `"\\u009b \\\\\u009b"`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asJSON, asYAML := structured(t, tt.text)
			assert.Contains(t, asJSON, tt.json)
			assert.Contains(t, asYAML, tt.yaml)
		})
	}
}

func FuzzStructuredOutput(f *testing.F) {
	for _, seed := range []string{"", "plain", "\u009b", "a\u0085\n\u2028", "\U000e0001\\\u202e", "- ? : 1e3"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) { structured(t, strings.ToValidUTF8(text, "?")) })
}
