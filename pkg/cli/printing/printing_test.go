package printing

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// structured prints a value in both formats and reads it back.
func structured(t *testing.T, text string) (asJSON, asYAML string) {
	t.Helper()
	value := map[string]string{"text": text, text + " as key": "x"}
	var j, y bytes.Buffer
	require.NoError(t, JSON(&j, value))
	require.NoError(t, YAML(&y, value))
	var fromJSON, fromYAML map[string]string
	require.NoError(t, json.Unmarshal(j.Bytes(), &fromJSON))
	require.NoError(t, yaml.Unmarshal(y.Bytes(), &fromYAML), y.String())
	assert.Equal(t, value, fromJSON)
	assert.Equal(t, value, fromYAML)
	assert.NotContains(t, strings.Map(steering, j.String()), "!")
	assert.NotContains(t, strings.Map(steering, y.String()), "!")
	return j.String(), y.String()
}

// steering maps each character that controls a terminal to an exclamation mark and drops all others.
func steering(r rune) rune {
	if Controls(r) {
		return '!'
	}
	return -1
}

//threat:control-characters-rewrite
func TestStructuredOutputEscapesControlCharacters(t *testing.T) {
	for _, tt := range []struct{ name, text, json, yaml string }{
		{"keeps plain text", "naïve — 日本 😀 <a&b>", `"naïve — 日本 😀 \u003ca\u0026b\u003e"`, `text: "naïve — 日本 \U0001F600 <a&b>"`},
		{"escapes a single-character control sequence introducer", "\u009b31m", `"\u009b31m"`, ""},
		{"keeps a next-line character", "a\u0085b", `"a\u0085b"`, ""},
		{"escapes the delete character", "a\x7fb", `"a\u007fb"`, ""},
		{"escapes characters that change the text direction", "a\u202eb", `"a\u202eb"`, `"a\U0000202eb"`},
		{"escapes invisible characters", "a\u200bb\ufeff", `"a\u200bb\ufeff"`, `"a\U0000200bb\U0000feff"`},
		{"escapes characters beyond the basic plane", "a\U000e0001b", `"a\udb40\udc01b"`, ""},
		{"escapes line separators", "a\u2028b\nc", `"a\u2028b\nc"`, ""},
		{"keeps an escape in the text", `\u009b \\` + "\u009b", `"\\u009b \\\\\u009b"`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asJSON, asYAML := structured(t, tt.text)
			assert.Contains(t, asJSON, tt.json)
			assert.Contains(t, asYAML, tt.yaml)
		})
	}
}

//threat:texts-others-status
func FuzzStructuredOutput(f *testing.F) {
	for _, seed := range []string{"", "plain", "\u009b", "a\u0085\n\u2028", "\U000e0001\\\u202e", "- ? : 1e3"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) { structured(t, strings.ToValidUTF8(text, "?")) })
}
